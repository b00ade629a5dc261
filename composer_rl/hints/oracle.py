"""Hints with the true content, worded by the templates: the upper bound of what a hint can say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from composer_rl.hints.templates import control_hint


@dataclass(kw_only=True)
class OracleHintGenerator:
    """`hint=oracle`: the true content."""

    in_rollout: bool = False
    """Show the hint to the policy in its own rollouts too (an ablation), not only to the teacher."""

    def generate(self, error_kind: str, error_meta: dict[str, Any]) -> str | None:
        """Text of the template over the environment's true content, None where it has none."""
        return control_hint(error_kind, error_meta, "oracle")
