"""What every stage is given and what it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from composer_rl.trackers.composite import TrackerSet


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Everything of a run that is not the stage's own setting."""

    run_dir: Path
    """Absolute; the only folder a stage may write to."""
    components: dict[str, Any]
    """Built component by config group name: `components["env"]`, `components["model"]`."""
    trackers: TrackerSet
    """Already started; the runner finishes it."""
    seed: int
    max_steps: int | None = None
    """Optimizer steps asked for on the command line; None means the stage's own `max_steps`."""
    resume: bool = False
    """Continue from the newest complete checkpoint in `run_dir`."""
    config: dict[str, Any] = field(default_factory=dict)
    """Resolved configuration of the run, as written to result.json."""


@dataclass(kw_only=True)
class StageResult:
    """What a stage hands back for result.json."""

    metrics: dict[str, float] = field(default_factory=dict)
    """Final figures, flat names with slashes."""
    engagement: list[dict[str, Any]] = field(default_factory=list)
    """Rows of the engagement table: knob, metric, value, engaged, note."""
    warnings: list[str] = field(default_factory=list)
    """What makes the figures less than they seem, a sentence each; shown in the summary and on the page."""
    stopped: str | None = None
    """Why the stage ended early on purpose (a guard, a budget); None when it ran to its end."""
    void: str | None = None
    """Why the figures do not say what the configuration claims (a loss channel that never acted): the run fails with
    EngagementError, its figures are kept. None when they do."""


@dataclass(kw_only=True)
class Stage(ABC):
    """Base of all stages."""

    needs_torch: ClassVar[bool] = True
    """Whether the runner imports and seeds torch before `run`; a stage without tensors sets it to False."""

    @property
    def required_groups(self) -> tuple[str, ...]:
        """Config groups whose component must be present (not null) for this stage."""
        return ()

    def check(self, components: dict[str, Any], *, max_steps: int | None = None) -> None:
        """Refuse combinations of components that cannot work together; torch-free, called before the run starts.

        Raises:
            ConfigError: naming the settings, what is wrong and what to do.
        """
        return

    @abstractmethod
    def run(self, context: RunContext) -> StageResult:
        """Do the work. Exceptions are turned into result.json by the runner."""
