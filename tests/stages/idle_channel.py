"""A loss channel that never finds anything to act on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from composer_rl.losses.base import LossChannel, LossOutput


@dataclass(kw_only=True)
class Idle(LossChannel):
    """Active on no token."""

    def num_active(self, inputs: dict[str, Any]) -> Any:
        return inputs["completion_mask"].sum().float() * 0.0

    def compute(self, model: Any, inputs: dict[str, Any]) -> LossOutput:
        return LossOutput(loss_sum=next(model.parameters()).sum() * 0.0)
