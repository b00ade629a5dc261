"""What makes two jobs the same job: their composed configuration, without what only names or places a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAMES_ONLY = frozenset({"resume", "rerun", "run_name", "tags", "trusted_packages", "tracker"})
"""Top-level keys that do not change what a job computes."""
_DIGITS = 8


def config_hash(config: Mapping[str, Any]) -> str:
    """8 hexadecimal digits of a resolved configuration, the same in every process and for every order of keys."""
    content = {key: value for key, value in config.items() if key not in NAMES_ONLY}
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def folder_of(sweep_dir: Path, digest: str) -> Path | None:
    """The folder of the job with this configuration in a sweep that was started before, whatever its number."""
    found = sorted(path for path in sweep_dir.glob(f"*-{digest}") if path.is_dir())
    return found[0] if found else None


def next_number(sweep_dir: Path) -> int:
    """A job number that no folder of the sweep has."""
    numbers = [int(head) for path in sweep_dir.glob("*-*") if (head := path.name.partition("-")[0]).isdigit()]
    return max(numbers, default=-1) + 1


def folder_name(number: int, digest: str) -> str:
    """`<number>-<hash>`."""
    return f"{number:02d}-{digest}"
