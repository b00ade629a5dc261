"""The top-level settings of every run: the keys of conf/config.yaml that are no config group."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True)
class RunSettings:
    """Settings of the run itself rather than of one of its parts."""

    seed: int = 0
    """Seeds Python, NumPy and torch; range [0, 2**32)."""
    max_steps: int | None = None
    """Optimizer steps; null leaves it to the stage."""
    resume: bool = False
    """Go on in an existing run folder (`hydra.run.dir=<folder>`) instead of refusing it."""
    run_name: str | None = None
    """Name shown by trackers and used as the folder name of a sweep; null makes one up."""
    rerun: str | None = None
    """The result.json that this run repeats; only read from the command line."""
    trusted_packages: list[str] = field(default_factory=list)
    """Packages of the user's own whose classes a `_target_` may name, besides composer_rl."""
    tags: list[str] = field(default_factory=list)
    """Labels handed to the trackers."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be in [0, 4294967296), got {self.seed}")
        if self.max_steps is not None and self.max_steps < 1:
            raise ValueError(f"max_steps must be at least 1 or null, got {self.max_steps}")
        if self.run_name is not None and (not self.run_name.strip() or "/" in self.run_name):
            raise ValueError(f"run_name must be a non-empty name without slashes, got {self.run_name!r}")


SETTING_NAMES: tuple[str, ...] = tuple(entry.name for entry in dataclasses.fields(RunSettings))


def settings_part(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a resolved configuration that RunSettings describes."""
    return {key: value for key, value in config.items() if key in SETTING_NAMES}
