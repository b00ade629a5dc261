"""The seam between a rollout and the choice of its tasks. Torch-free and deterministic from the seed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from composer_rl.engagement import Knob

PREFERENCE = "curriculum/preference"
"""Metric: probability of the likeliest next task times the number of tasks; 1 when all are as likely."""


@dataclass(kw_only=True)
class Curriculum(ABC):
    """Base of all curricula. Call `reset` once before anything else."""

    @abstractmethod
    def reset(self, task_ids: Sequence[str], seed: int) -> None:
        """Take the training tasks and forget everything.

        Raises:
            ValueError: for no tasks or repeated ids.
        """

    @abstractmethod
    def sample(self, num: int) -> list[str]:
        """Ids of the next `num` tasks, in order.

        Raises:
            ValueError: for a negative `num`.
        """

    @abstractmethod
    def update(self, task_id: str, successes: int, attempts: int) -> None:
        """Learn that `successes` of `attempts` rollouts of a task solved it on their first turn.

        Raises:
            ValueError: for an unknown task, or counts outside 0 <= successes <= attempts.
        """

    @abstractmethod
    def weights(self) -> dict[str, float]:
        """Probability with which each task is drawn next; sums to 1."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """Figures to log, names starting with `curriculum/`."""

    def knobs(self) -> list[Knob]:
        """The choice itself: whether any task was ever preferred to another."""
        from composer_rl.engagement import Knob

        return [
            Knob(
                name="",
                metric=PREFERENCE,
                threshold=1.0,
                tolerance=1e-6,
                advice="every task stayed as likely as every other",
            )
        ]

    def preference(self) -> float:
        """Value of the metric `curriculum/preference`."""
        weights = self.weights()
        return max(weights.values()) * len(weights)

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """JSON-serialisable state."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint, after `reset` with the same tasks.

        Raises:
            ValueError: when the checkpoint was written for other tasks.
        """


def check_task_ids(task_ids: Sequence[str]) -> list[str]:
    """The ids as a list.

    Raises:
        ValueError: for no ids or repeated ones.
    """
    ids = list(task_ids)
    if not ids:
        raise ValueError("task_ids must not be empty")
    if len(set(ids)) != len(ids):
        raise ValueError(f"task_ids must be unique, {len(ids) - len(set(ids))} are repeated")
    return ids


def check_outcome(task_id: str, successes: int, attempts: int, known: Sequence[str] | set[str]) -> None:
    """Check the arguments of `Curriculum.update`.

    Raises:
        ValueError: naming the argument and its value.
    """
    if task_id not in known:
        raise ValueError(f"task_id must be one of the tasks given to reset, got {task_id!r}")
    if not 0 <= successes <= attempts:
        raise ValueError(f"successes must be in [0, attempts={attempts}], got {successes}")
