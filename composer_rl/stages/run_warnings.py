"""What makes a training run that ended well less than it seems, read from the log of its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def training_warnings(history: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each thing; [] for a run that could learn.

    `history` is the trainer's log, one mapping a logged step: `grad_norm`, `reward` (NaN or None where no completion
    could be scored) and TRL's `frac_reward_zero_std`, the share of groups whose rewards are all the same.
    """
    steps = [entry for entry in history if "grad_norm" in entry]
    if not steps:
        return []
    num_steps = "in the only step" if len(steps) == 1 else f"in all {len(steps)} steps"
    reason = _without_signal(steps)
    if all(entry["grad_norm"] == 0.0 for entry in steps):
        return [f"no step had a gradient: {reason or 'the gradient was 0'} {num_steps}; look at the reward"]
    if reason is not None:
        return [f"the reward taught nothing: {reason} {num_steps}; only the loss's other terms had a gradient"]
    return []


def _without_signal(steps: Sequence[Mapping[str, Any]]) -> str | None:
    """Why no step had an advantage other than 0; None when one had."""
    if all(_is_unscored(entry.get("reward", 0.0)) for entry in steps):
        return "the reward scored no completion (None)"
    if all(entry.get("frac_reward_zero_std") == 1.0 or _is_unscored(entry.get("reward", 0.0)) for entry in steps):
        return "every group had the same reward"
    return None


def _is_unscored(reward: float | None) -> bool:
    return reward is None or reward != reward
