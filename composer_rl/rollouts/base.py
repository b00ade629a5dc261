"""What a rollout needs from the other families, and what it hands back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from composer_rl.types import Rollout, StepResult, Task


class RolloutEnvironment(Protocol):
    """The part of an environment that rollouts use; see composer_rl/envs/base.py."""

    max_turns: int

    def start(self, task: Task) -> Any:
        """Begin an episode."""
        ...

    def step(self, episodes: Sequence[Any], actions: Sequence[str]) -> list[StepResult]:
        """Advance each episode by one assistant turn."""
        ...


class RolloutHints(Protocol):
    """The part of a hint generator that rollouts use; see composer_rl/hints/base.py."""

    def generate(self, error_kind: str, error_meta: dict[str, Any]) -> str | None:
        """Hint text for one error site, or None."""
        ...


@dataclass(kw_only=True)
class RolloutStats:
    """Where the time of a batch of rollouts went and how much was sampled."""

    num_rollouts: int = 0
    num_turns: int = 0
    num_tokens: int = 0
    """Tokens the policy sampled."""
    num_given_tokens: int = 0
    """Tokens of tool turns, hints and headers."""
    num_hints: int = 0
    """Hints that the policy was shown (hint.in_rollout)."""
    num_steps: int = 0
    """Decoding steps of the model, each of all rows in its batch."""
    kept_mass: float = 0.0
    """Sum over sampled tokens of the probability mass that truncated sampling kept."""
    generate_s: float = 0.0
    """Seconds in the model."""
    environment_s: float = 0.0
    """Seconds in the environment: grading."""
    render_s: float = 0.0
    """Seconds in chat template and tokenizer."""

    def add(self, other: RolloutStats) -> None:
        """Add the figures of another batch to these."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def metrics(self) -> dict[str, float]:
        """Flat metrics: seconds, sampled tokens a second of generation, the mass that sampling kept, hints shown.

        rollout/kept_mass is the mean share of the full distribution that could be drawn from: 1 without top-k, top-p
        and min-p. Below 1, log-probabilities of the rollouts are not those of the distribution they came from.
        """
        tokens = max(self.num_tokens, 1)
        return {
            "time/rollout_s": self.generate_s + self.render_s,
            "time/grade_s": self.environment_s,
            "time/generate_s": self.generate_s,
            "time/render_s": self.render_s,
            "rollout/sampled_tokens": float(self.num_tokens),
            "rollout/given_tokens": float(self.num_given_tokens),
            "rollout/tokens_per_s": self.num_tokens / self.generate_s if self.generate_s > 0 else 0.0,
            "rollout/rows_per_step": self.num_tokens / max(self.num_steps, 1),
            "rollout/kept_mass": self.kept_mass / tokens,
            "hints/num_shown": float(self.num_hints),
        }


@dataclass(kw_only=True)
class RolloutBatch:
    """Rollouts, task by task, and the figures of making them."""

    rollouts: list[Rollout] = field(default_factory=list)
    stats: RolloutStats = field(default_factory=RolloutStats)
