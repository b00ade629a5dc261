"""The seam between a run and its optimizer: a schedule that every optimizer shares, and how to build one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

    from composer_rl.engagement import Knob

_UNTIL_STEPS_END = {"linear": "linear", "cosine": "cosine"}


@dataclass(kw_only=True)
class OptimizerSettings(ABC):
    """Base of all optimizers: learning rate, its schedule, and gradient clipping."""

    learning_rate: float = 1e-3
    """Peak learning rate, above 0."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What the rate does after the warm-up: stay, or fall to `final_learning_rate` at the last step."""
    final_learning_rate: float = 0.0
    """Rate at the last step of linear and cosine, range [0, learning_rate)."""
    warmup_steps: int = 0
    """Optimizer steps over which the rate rises linearly from 0, at least 0."""
    warmup_ratio: float = 0.0
    """The same as a share of all steps, range [0, 1); at most one of the two is set."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm, at least 0; 0 leaves them alone."""

    def __post_init__(self) -> None:
        if not (self.learning_rate > 0.0 and math.isfinite(self.learning_rate)):
            raise ValueError(f"learning_rate must be a finite number above 0, got {self.learning_rate}")
        if not 0.0 <= self.final_learning_rate < self.learning_rate:
            raise ValueError(
                f"final_learning_rate must be in [0, learning_rate={self.learning_rate:g}), "
                f"got {self.final_learning_rate}"
            )
        if self.final_learning_rate > 0.0 and self.schedule == "constant":
            raise ValueError(
                f"final_learning_rate is read by schedule=linear and cosine only, got {self.final_learning_rate} "
                "with schedule=constant"
            )
        if self.warmup_steps < 0:
            raise ValueError(f"warmup_steps must be at least 0, got {self.warmup_steps}")
        if not 0.0 <= self.warmup_ratio < 1.0:
            raise ValueError(f"warmup_ratio must be in [0, 1), got {self.warmup_ratio}")
        if self.warmup_steps and self.warmup_ratio:
            raise ValueError(
                f"warmup_steps and warmup_ratio: set at most one, got {self.warmup_steps} and {self.warmup_ratio}"
            )
        if not (self.max_grad_norm >= 0.0 and math.isfinite(self.max_grad_norm)):
            raise ValueError(f"max_grad_norm must be a finite number of at least 0, got {self.max_grad_norm}")

    @abstractmethod
    def optimizer_kwargs(self) -> dict[str, Any]:
        """What `transformers.TrainingArguments` needs to build the optimizer itself; {} when `build` does it."""

    def build(self, model: torch.nn.Module) -> torch.optim.Optimizer | None:
        """An optimizer over the model's trainable parameters, or None when the trainer builds it from its arguments."""
        return None

    def knobs(self) -> list[Knob]:
        """The clip; the rate, its schedule and warm-up act by construction."""
        from composer_rl.engagement import Knob

        if self.max_grad_norm == 0.0:
            return []
        return [
            Knob(
                name="max_grad_norm",
                metric="grad_norm",
                threshold=self.max_grad_norm,
                advice="no gradient was longer than that",
            )
        ]

    def to_trainer_kwargs(self) -> dict[str, Any]:
        """Keyword arguments of `transformers.TrainingArguments` (and so of `trl.GRPOConfig`)."""
        return {
            "learning_rate": self.learning_rate,
            "max_grad_norm": self.max_grad_norm,
            "warmup_steps": self.warmup_steps or self.warmup_ratio,
            **self._schedule_kwargs(),
            **self.optimizer_kwargs(),
        }

    def _schedule_kwargs(self) -> dict[str, Any]:
        if self.schedule == "constant":
            has_warmup = bool(self.warmup_steps or self.warmup_ratio)
            return {"lr_scheduler_type": "constant_with_warmup" if has_warmup else "constant"}
        if self.final_learning_rate == 0.0:
            return {"lr_scheduler_type": _UNTIL_STEPS_END[self.schedule]}
        if self.schedule == "cosine":
            floor = {"min_lr": self.final_learning_rate}
            return {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": floor}
        line = {"lr_end": self.final_learning_rate, "power": 1.0}
        return {"lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": line}
