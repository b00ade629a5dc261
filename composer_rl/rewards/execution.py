"""The environment's grade, discounted by the number of turns it took.

    reward = grade of the last turn x turn_discount ^ (turns - 1)

An episode ends as soon as a turn solves the task. Without a discount a policy that answers carelessly and repairs
later earns as much as one that is right at once, and a group in which every attempt ends solved has no variance left,
so nothing would push the first turn. With 0.5 a second-turn solution is worth half: still far better than none, so
recovery goes on being learnt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from composer_rl.rewards.base import RewardBatch, RewardFunction

if TYPE_CHECKING:
    from composer_rl.engagement import Knob

DISCOUNTED_SHARE = "execution/discounted_share"
"""Metric: share of rollouts whose grade is above 0 and came after the first turn."""


@dataclass(kw_only=True)
class ExecutionReward(RewardFunction):
    """Grade of the last turn times a discount for the turns before it."""

    turn_discount: float = 0.5
    """Factor per turn after the first, range (0, 1]; 1 counts a late solution in full."""

    def __post_init__(self) -> None:
        if not 0.0 < self.turn_discount <= 1.0:
            raise ValueError(f"turn_discount must be in (0, 1], got {self.turn_discount}")

    @property
    def name(self) -> str:
        return "execution"

    @property
    def uses_grades(self) -> bool:
        return True

    def score(self, batch: RewardBatch) -> list[float | None]:
        """One discounted grade per rollout.

        Raises:
            ValueError: without rollouts; a dataset without environment needs another reward.
        """
        if batch.rollouts is None:
            raise ValueError(
                "reward=execution needs the rollouts of an environment; for a dataset without one use "
                "reward=answer_match or reward=function"
            )
        return [rollout.reward * self.turn_discount ** max(len(rollout.turns) - 1, 0) for rollout in batch.rollouts]

    def metrics(self, batch: RewardBatch, scores: Sequence[float | None]) -> dict[str, float]:
        """`execution/discounted_share`: rollouts that a discount below 1 makes worth less, as a share of all."""
        rollouts = batch.rollouts or ()
        discounted = sum(rollout.reward > 0.0 and len(rollout.turns) > 1 for rollout in rollouts)
        return {DISCOUNTED_SHARE: discounted / max(len(rollouts), 1)}

    def knobs(self) -> list[Knob]:
        """The discount, unless it is 1."""
        from composer_rl.engagement import Knob

        if self.turn_discount == 1.0:
            return []
        return [
            Knob(
                name="turn_discount",
                metric=DISCOUNTED_SHARE,
                advice="no turn after a first one earned a reward, or there was none (env.max_turns)",
            )
        ]
