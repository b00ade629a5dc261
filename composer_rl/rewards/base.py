"""The seam between rollouts and the numbers that the policy objective maximises.

A reward function scores a whole batch at once. None marks a completion that cannot be scored: it gets advantage 0
and is left out of the mean and the standard deviation of its group (TRL 1.16; case B35).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from composer_rl.types import Message, Rollout

if TYPE_CHECKING:
    from composer_rl.engagement import Knob

_NOT_COLUMNS = frozenset({"rollout", "trainer_state", "log_extra", "log_metric", "environments"})
"""Keyword arguments of TRL's reward call that are no dataset columns."""


@dataclass(frozen=True, kw_only=True)
class RewardBatch:
    """What is known about the completions to score; all sequences have one entry per completion."""

    completions: Sequence[Any]
    """Chat messages of each completion (assistant and tool turns in order), or plain text."""
    completion_ids: Sequence[Sequence[int]]
    """Tokens of each completion without padding, tool turns included."""
    prompts: Sequence[Any] | None = None
    """Chat messages or text of each prompt; None when only rollouts were given."""
    rollouts: Sequence[Rollout] | None = None
    """Token-exact records; None when TRL generated the completions itself."""
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Further columns of the dataset."""

    def __len__(self) -> int:
        return len(self.completion_ids)


@dataclass(kw_only=True)
class RewardFunction(ABC):
    """Base of all reward functions. Torch-free."""

    @property
    def name(self) -> str:
        """Name under which its mean is logged (`rewards/<name>/mean`)."""
        return type(self).__name__

    @property
    def uses_grades(self) -> bool:
        """Whether it reads `Rollout.reward`, so that it is meaningless with an environment that does not grade."""
        return False

    @abstractmethod
    def score(self, batch: RewardBatch) -> list[float | None]:
        """One finite number per completion, or None for one that cannot be scored."""

    def metrics(self, batch: RewardBatch, scores: Sequence[float | None]) -> dict[str, float]:
        """Further figures about a scored batch to log; none by default."""
        return {}

    def required_columns(self) -> dict[str, str]:
        """Dataset columns without which it cannot score -> its own setting that asks for the column."""
        return {}

    def knobs(self) -> list[Knob]:
        """Settings that are switched on, with the metric that shows that each one acted; none by default."""
        return []

    def parts(self) -> list[tuple[str, RewardFunction, float]]:
        """(name, function, weight) of the functions whose weighted sum this is; itself alone by default."""
        return [(self.name, self, 1.0)]

    def __call__(self, rollouts: Sequence[Rollout]) -> list[float | None]:
        """Score rollouts, one entry each, in order."""
        return checked_scores(self, batch_of_rollouts(rollouts))


def batch_of_rollouts(rollouts: Sequence[Rollout]) -> RewardBatch:
    """The batch that rollouts alone make: their turns as chat messages, no prompts, no columns."""
    return RewardBatch(
        completions=[_messages(rollout) for rollout in rollouts],
        completion_ids=[rollout.completion_ids for rollout in rollouts],
        rollouts=rollouts,
    )


def checked_scores(reward: RewardFunction, batch: RewardBatch) -> list[float | None]:
    """Scores of a batch as plain floats.

    Raises:
        ValueError: when the count is wrong or a score is not finite; one bad number would spoil its whole group.
    """
    scores = list(reward.score(batch))
    if len(scores) != len(batch):
        raise ValueError(f"reward {reward.name} returned {len(scores)} scores for {len(batch)} completions")
    plain = [None if score is None else float(score) for score in scores]
    for index, score in enumerate(plain):
        if score is not None and not math.isfinite(score):
            raise ValueError(
                f"reward {reward.name} returned {score} for completion {index}; "
                "return None for a completion that cannot be scored"
            )
    return plain


class TRLReward:
    """A reward function under TRL's signature; picklable, with the name that TRL logs it by."""

    def __init__(self, reward: RewardFunction, *, name: str) -> None:
        self.reward = reward
        self.__name__ = name

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], completion_ids: Sequence[Sequence[int]], **kwargs: Any
    ) -> list[float | None]:
        """Score TRL's batch. `kwargs["rollout"]`, if present, holds one `Rollout` per completion."""
        batch = RewardBatch(
            prompts=prompts,
            completions=completions,
            completion_ids=completion_ids,
            rollouts=kwargs.get("rollout"),
            columns={name: value for name, value in kwargs.items() if name not in _NOT_COLUMNS},
        )
        scores = checked_scores(self.reward, batch)
        log_metric = kwargs.get("log_metric")
        if log_metric is not None:
            for name, value in self.reward.metrics(batch, scores).items():
                log_metric(name, value)
        return scores


def as_trl(reward: RewardFunction) -> TRLReward:
    """A reward as a single function for `GRPOTrainer(reward_funcs=[...])`; only its total is logged."""
    return TRLReward(reward, name=reward.name)


def as_trl_functions(reward: RewardFunction) -> tuple[list[TRLReward], list[float]]:
    """A reward as TRL's `reward_funcs` and `reward_weights`, one entry per part.

    TRL then logs every part by name, and its `normalize_then_sum` can act on them.
    """
    parts = reward.parts()
    return [TRLReward(part, name=name) for name, part, _ in parts], [weight for _, _, weight in parts]


def _messages(rollout: Rollout) -> list[Message]:
    messages: list[Message] = []
    for turn in rollout.turns:
        messages.append({"role": "assistant", "content": turn.text})
        if turn.observation is not None:
            messages.append({"role": "tool", "content": turn.observation})
    return messages
