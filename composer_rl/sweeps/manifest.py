"""sweep.json: the plan of a sweep and how each of its jobs stands, complete after every write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from composer_rl.config.record import now_text, write_atomically
from composer_rl.config.redact import redact_override

MANIFEST_NAME = "sweep.json"
JobStatus = Literal["pending", "running", "succeeded", "failed", "interrupted", "stopped"]


@dataclass(kw_only=True)
class JobEntry:
    """One job."""

    num: int
    dir: str
    """Name of its folder in the sweep's."""
    overrides: list[str]
    seed: int | None
    arm: dict[str, str]
    """Swept settings and their values, without the seed."""
    status: JobStatus = "pending"
    attempts: int = 0
    """How often it was started."""
    error: str | None = None
    duration_s: float | None = None
    """Seconds of its last attempt."""


@dataclass(kw_only=True)
class Manifest:
    """The content of sweep.json."""

    name: str
    objective: str
    """Final figure that arms are compared by."""
    direction: Literal["maximize", "minimize"] = "maximize"
    question: str | None = None
    baseline: dict[str, str] | None = None
    """Arm that the others are compared with."""
    command: list[str] = field(default_factory=list)
    created: str = field(default_factory=now_text)
    updated: str = ""
    jobs: list[JobEntry] = field(default_factory=list)

    def write(self, sweep_dir: Path) -> None:
        """Replace sweep.json in one step; secrets are taken out of overrides and command."""
        self.updated = now_text()
        content = asdict(self)
        content["command"] = [redact_override(word) for word in self.command]
        for job in content["jobs"]:
            job["overrides"] = [redact_override(line) for line in job["overrides"]]
            job["arm"] = dict(redact_override(f"{key}={value}").split("=", 1) for key, value in job["arm"].items())
        write_atomically(sweep_dir / MANIFEST_NAME, json.dumps(content, indent=1) + "\n")


def earlier_manifest(sweep_dir: Path) -> dict[str, Any]:
    """What sweep.json held before; {} without a readable one."""
    try:
        content = json.loads((sweep_dir / MANIFEST_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def earlier_entries(earlier: Mapping[str, Any]) -> list[JobEntry]:
    """The jobs of what sweep.json held before; those that were under way count as interrupted."""
    names = {item.name for item in fields(JobEntry)}
    jobs = [job for job in earlier.get("jobs", ()) if isinstance(job, dict) and job.keys() == names]
    entries = [JobEntry(**job) for job in jobs]
    for entry in entries:
        entry.status = "interrupted" if entry.status == "running" else entry.status
    return entries


def arm_of(overrides: Sequence[str], swept: Sequence[str]) -> dict[str, str]:
    """Values of the swept settings of one job, the seed left out."""
    values = dict(line.lstrip("+").split("=", 1) for line in overrides if "=" in line)
    return {key: values[key] for key in swept if key in values and key != "seed"}
