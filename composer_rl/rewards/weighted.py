"""Named, weighted reward functions: the reward of a completion is the weighted sum over those that scored it.

`as_trl_functions` hands TRL each part by itself, so that every part is logged under its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from composer_rl.rewards.base import RewardBatch, RewardFunction, checked_scores

if TYPE_CHECKING:
    from composer_rl.engagement import Knob


@dataclass(kw_only=True)
class WeightedPart:
    """One reward function and its factor."""

    reward: RewardFunction
    """The function; one of the user's own works by `_target_` in a trusted package."""
    weight: float = 1.0
    """Factor in the sum, not 0; a negative one makes a penalty."""

    def __post_init__(self) -> None:
        if self.weight == 0.0 or self.weight != self.weight:
            raise ValueError(f"weight must be a number other than 0, got {self.weight}: remove the part instead")


@dataclass(kw_only=True)
class WeightedReward(RewardFunction):
    """`reward.functions`: a named dict, so that one part can be changed, added or removed on the command line."""

    functions: dict[str, WeightedPart] = field(default_factory=dict)
    """Parts by the name under which they are logged; at least one, names without '/'."""

    def __post_init__(self) -> None:
        if not self.functions:
            raise ValueError("functions must name at least one reward function, got none")
        for name in self.functions:
            if not name or "/" in name:
                raise ValueError(f"functions: a name must be non-empty and without '/', got {name!r}")

    @property
    def name(self) -> str:
        return "weighted"

    def score(self, batch: RewardBatch) -> list[float | None]:
        """Weighted sums; None where no part could score the completion, as TRL does."""
        totals: list[float | None] = [None] * len(batch)
        for part in self.functions.values():
            for index, score in enumerate(checked_scores(part.reward, batch)):
                if score is not None:
                    totals[index] = (totals[index] or 0.0) + part.weight * score
        return totals

    @property
    def uses_grades(self) -> bool:
        return any(part.reward.uses_grades for part in self.functions.values())

    def required_columns(self) -> dict[str, str]:
        """Those of every part."""
        return {
            column: f"functions.{name}.reward.{setting}"
            for name, part in self.functions.items()
            for column, setting in part.reward.required_columns().items()
        }

    def knobs(self) -> list[Knob]:
        """Those of every part."""
        return [
            knob.under(f"functions.{name}.reward")
            for name, part in self.functions.items()
            for knob in part.reward.knobs()
        ]

    def parts(self) -> list[tuple[str, RewardFunction, float]]:
        """Every innermost function with the product of the weights on the way to it."""
        flat = []
        for name, part in self.functions.items():
            inner = part.reward.parts()
            for inner_name, function, weight in inner:
                full_name = name if len(inner) == 1 else f"{name}.{inner_name}"
                flat.append((full_name, function, part.weight * weight))
        return flat
