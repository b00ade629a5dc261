"""DAPO's soft over-long punishment (arXiv 2503.14476, equation 13).

With y the length of a completion, L_max its budget and L_cache the length of the ramp:

    0                                   y <= L_max - L_cache
    ((L_max - L_cache) - y) / L_cache   L_max - L_cache < y <= L_max
    -1                                  L_max < y

`trl.rewards.get_soft_overlong_punishment` computes the same from token ids alone. This one is torch-free, can count
only the tokens that the policy sampled, and reports the share of completions that it reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from composer_rl.rewards.base import RewardBatch, RewardFunction


@dataclass(kw_only=True)
class SoftOverlongPenalty(RewardFunction):
    """A penalty from 0 to -1 that grows over the last tokens of the budget."""

    max_tokens: int
    """L_max, the budget of a completion in tokens, at least 1. Paper: 20480."""
    cache_tokens: int
    """L_cache, the length of the ramp in tokens, range [1, max_tokens]. Paper: 4096."""
    count: Literal["all", "sampled"] = "all"
    """Tokens that make up the length: the whole completion, which is what the budget limits, or without the tool
    turns. The two differ in multi-turn rollouts only; `sampled` needs rollouts."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}")
        if not 1 <= self.cache_tokens <= self.max_tokens:
            raise ValueError(f"cache_tokens must be in [1, max_tokens={self.max_tokens}], got {self.cache_tokens}")

    @property
    def name(self) -> str:
        return "overlong_penalty"

    def penalty(self, length: int) -> float:
        """Equation 13 for a completion of `length` tokens, in [-1, 0]."""
        free = self.max_tokens - self.cache_tokens
        if length <= free:
            return 0.0
        return max(free - length, -self.cache_tokens) / self.cache_tokens

    def score(self, batch: RewardBatch) -> list[float | None]:
        """One penalty per completion.

        Raises:
            ValueError: with count=sampled and no rollouts.
        """
        return [self.penalty(length) for length in self._lengths(batch)]

    def metrics(self, batch: RewardBatch, scores: Sequence[float | None]) -> dict[str, float]:
        """`overlong_penalty/penalized_share`: share of completions with a penalty below 0."""
        share = sum(score is not None and score < 0.0 for score in scores) / max(len(scores), 1)
        return {"overlong_penalty/penalized_share": share}

    def _lengths(self, batch: RewardBatch) -> list[int]:
        if self.count == "all":
            return [len(ids) for ids in batch.completion_ids]
        if batch.rollouts is None:
            raise ValueError("count=sampled needs rollouts, which record the sampled tokens; use count=all")
        return [sum(rollout.env_mask) for rollout in batch.rollouts]
