"""The seam between the trainer and everything that is added to the policy loss.

    total = policy + sum over channels of  weight(step) * loss_sum / denominator

The trainer owns the scaling: `denominator` is summed over the micro-batches of the accumulation window and over
the ranks before the first backward of that window, so a channel never divides and never knows about accumulation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from composer_rl.engagement import Knob


@dataclass(frozen=True, kw_only=True)
class LossOutput:
    """What a channel computed on one micro-batch."""

    loss_sum: torch.Tensor
    """Scalar: the sum, not the mean, over the channel's active units; attached to the graph even when it is 0."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Scalars to log under `channels/<channel>/<name>`."""


@dataclass(kw_only=True)
class LossChannel(ABC):
    """Base of all loss channels."""

    weight: float = 1.0
    """Factor of the channel in the total loss; 0 switches it off."""

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise ValueError(f"weight must be at least 0, got {self.weight}")

    def knobs(self) -> list[Knob]:
        """Settings of its own that are switched on; metrics by the names that `LossOutput.metrics` gives them.

        Whether the channel found anything to act on is asked of every channel without being declared here.
        """
        return []

    def weight_at(self, step: int) -> float:
        """Weight in force at an optimizer step (0-based)."""
        return self.weight

    @abstractmethod
    def num_active(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Scalar float tensor: how many units (tokens, pairs) of this micro-batch the channel acts on.

        Reads the batch only, never the model, so that a whole accumulation window can be counted up front.
        """

    @abstractmethod
    def compute(self, model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> LossOutput:
        """Loss summed over the active units of one micro-batch.

        `inputs` is TRL's micro-batch: prompt_ids (B, P), prompt_mask (B, P; 1 = real token), completion_ids (B, C),
        completion_mask (B, C), advantages (B,), optionally tool_mask (B, C; 0 = token not sampled by the policy).
        """
