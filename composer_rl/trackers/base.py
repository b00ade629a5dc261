"""The seam between a run and the places its metrics go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """What a tracker is told at the start of a run."""

    run_id: str
    """Unique across machines and jobs started in the same second."""
    run_name: str
    run_dir: Path
    config: dict[str, Any]
    """Resolved configuration, secrets already removed."""
    group: str | None = None
    """Sweep name, None outside a sweep."""
    tags: tuple[str, ...] = ()
    total_steps: int | None = None
    """Optimizer steps planned; None when unknown."""
    resume_step: int | None = None
    """Optimizer step of the checkpoint that the run continues from (0: it starts over in a folder that a run has
    already written to). What was recorded beyond that step is dropped. None for a run in a new folder."""


@dataclass(kw_only=True)
class Tracker(ABC):
    """Base of all trackers. A tracker's failure never ends a run: the caller logs it once and goes on."""

    @abstractmethod
    def start(self, info: RunInfo) -> None:
        """Open files or connections. Raises MissingExtraError when its package is absent."""

    @abstractmethod
    def log(self, metrics: dict[str, float], *, step: int) -> None:
        """Record flat scalar metrics (slash-separated names) at an optimizer step."""

    def phase(self, text: str) -> None:
        """Say in a few words what the run is doing now ("measuring held-out tasks"); "" when training goes on.

        Only trackers that somebody watches use it.
        """
        return

    @abstractmethod
    def finish(self, status: str, summary: dict[str, Any]) -> None:
        """Write the final figures and close; called exactly once, in a finally.

        `status` is that of result.json ("succeeded", "failed", "interrupted", "stopped"). `summary` has the
        layout of result.json; trackers read `metrics` (flat floats), `engagement` (rows of the engagement table)
        and `error`, each of which may be absent.
        """
