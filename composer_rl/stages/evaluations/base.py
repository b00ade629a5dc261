"""The seam between the evaluate stage and its measurements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from composer_rl.stages.base import RunContext, StageResult


@dataclass(kw_only=True)
class Evaluation(ABC):
    """One measurement; the option of the `evaluate` group."""

    @property
    def required_groups(self) -> tuple[str, ...]:
        """Config groups that this measurement needs."""
        return ("env", "sandbox", "model", "rollout")

    @abstractmethod
    def evaluate(self, context: RunContext) -> StageResult:
        """Measure, print a table, and return flat metrics."""
