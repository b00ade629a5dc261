"""No hints: the control that shows what a policy does with the error alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(kw_only=True)
class NoHintGenerator:
    """`hint=none`: no hint."""

    in_rollout: bool = False
    """Show the hint to the policy in its own rollouts too (an ablation), not only to the teacher."""

    def generate(self, error_kind: str, error_meta: dict[str, Any]) -> str | None:
        """None for every error."""
        return None
