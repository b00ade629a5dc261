"""Every task equally often: shuffled passes over all of them, each task once a pass.

A pass is shuffled with a generator of its own, seeded by (seed, pass), so that the state is three numbers and a
resumed run draws what the uninterrupted one would have drawn.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from composer_rl.curricula.base import Curriculum, check_outcome, check_task_ids

if TYPE_CHECKING:
    from composer_rl.engagement import Knob


@dataclass(kw_only=True)
class UniformCurriculum(Curriculum):
    """Sampling without replacement within a pass; outcomes are counted, not used."""

    _task_ids: list[str] = field(default_factory=list, init=False, repr=False)
    _known: set[str] = field(default_factory=set, init=False, repr=False)
    _order: list[str] = field(default_factory=list, init=False, repr=False)
    _seed: int = field(default=0, init=False, repr=False)
    _epoch: int = field(default=0, init=False, repr=False)
    _position: int = field(default=0, init=False, repr=False)
    _successes: int = field(default=0, init=False, repr=False)
    _attempts: int = field(default=0, init=False, repr=False)

    def reset(self, task_ids: Sequence[str], seed: int) -> None:
        """Start the first pass. The order of `task_ids` matters: give the same one for the same draws."""
        self._task_ids = check_task_ids(task_ids)
        self._known = set(self._task_ids)
        self._seed = seed
        self._epoch, self._position = 0, 0
        self._successes, self._attempts = 0, 0
        self._order = self._shuffled(0)

    def sample(self, num: int) -> list[str]:
        """The next `num` tasks; a batch larger than what is left of the pass continues in the next one."""
        if num < 0:
            raise ValueError(f"num must be at least 0, got {num}")
        if not self._task_ids:
            raise ValueError("call reset before sample")
        drawn: list[str] = []
        while len(drawn) < num:
            if self._position == len(self._order):
                self._epoch, self._position = self._epoch + 1, 0
                self._order = self._shuffled(self._epoch)
            taken = self._order[self._position : self._position + num - len(drawn)]
            self._position += len(taken)
            drawn += taken
        return drawn

    def update(self, task_id: str, successes: int, attempts: int) -> None:
        """Count the outcome for the metrics."""
        check_outcome(task_id, successes, attempts, self._known)
        self._successes += successes
        self._attempts += attempts

    def weights(self) -> dict[str, float]:
        """1 / number of tasks left in the pass for those, 0 for the others; all equal between two passes."""
        left = self._order[self._position :] or self._order
        return dict.fromkeys(self._task_ids, 0.0) | dict.fromkeys(left, 1.0 / len(left))

    def knobs(self) -> list[Knob]:
        """None: it prefers no task."""
        return []

    def metrics(self) -> dict[str, float]:
        """Passes over the tasks so far (fractional), number of tasks, and share of solved first attempts."""
        figures = {
            "curriculum/epoch": self._epoch + self._position / max(len(self._order), 1),
            "curriculum/num_tasks": float(len(self._task_ids)),
        }
        if self._attempts:
            figures["curriculum/solve_rate"] = self._successes / self._attempts
        return figures

    def state_dict(self) -> dict[str, Any]:
        """Seed, pass, position, counts, and a digest of the task ids."""
        return {
            "tasks": _digest(self._task_ids),
            "seed": self._seed,
            "epoch": self._epoch,
            "position": self._position,
            "successes": self._successes,
            "attempts": self._attempts,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue a pass; the checkpoint's seed wins over the one given to `reset`."""
        if state["tasks"] != _digest(self._task_ids):
            raise ValueError(
                f"the checkpoint's curriculum was written for another list of tasks than the {len(self._task_ids)} "
                "of this run; resume with the same env settings"
            )
        self._seed, self._epoch, self._position = int(state["seed"]), int(state["epoch"]), int(state["position"])
        self._successes, self._attempts = int(state["successes"]), int(state["attempts"])
        self._order = self._shuffled(self._epoch)

    def _shuffled(self, epoch: int) -> list[str]:
        order = list(self._task_ids)
        random.Random(f"{self._seed}/{epoch}").shuffle(order)
        return order


def _digest(task_ids: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(task_ids).encode()).hexdigest()[:16]
