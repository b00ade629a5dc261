"""AdamW (arXiv 1711.05101), built by the trainer through torch's fused kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from composer_rl.optim.base import OptimizerSettings


@dataclass(kw_only=True)
class AdamWSettings(OptimizerSettings):
    """Adam with decoupled weight decay over all trainable parameters."""

    beta1: float = 0.9
    """Decay of the gradient mean, range [0, 1)."""
    beta2: float = 0.98
    """Decay of the squared gradient mean, range [0, 1). Short runs do not live long enough for torch's 0.999."""
    epsilon: float = 1e-8
    """Added to the root of the second moment, above 0. MiniMax-M1 (arXiv 2506.13585) needs 1e-15 at large scale."""
    weight_decay: float = 0.0
    """Share of the weights removed per step and learning rate, at least 0; biases and norms are exempt."""
    fused: bool = True
    """One kernel for all parameters; the same mathematics as the plain loop, faster on CPU and GPU."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            if not 0.0 <= value < 1.0:
                raise ValueError(f"{name} must be in [0, 1), got {value}")
        if not (self.epsilon > 0.0 and math.isfinite(self.epsilon)):
            raise ValueError(f"epsilon must be a finite number above 0, got {self.epsilon}")
        if not (self.weight_decay >= 0.0 and math.isfinite(self.weight_decay)):
            raise ValueError(f"weight_decay must be a finite number of at least 0, got {self.weight_decay}")

    def optimizer_kwargs(self) -> dict[str, Any]:
        """See the base class."""
        return {
            "optim": "adamw_torch_fused" if self.fused else "adamw_torch",
            "adam_beta1": self.beta1,
            "adam_beta2": self.beta2,
            "adam_epsilon": self.epsilon,
            "weight_decay": self.weight_decay,
        }
