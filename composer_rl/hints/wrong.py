"""Hints with another content of the same kind, worded by the templates: shows whether the content counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from composer_rl.hints.templates import control_hint


@dataclass(kw_only=True)
class WrongHintGenerator:
    """`hint=wrong`: a wrong content."""

    in_rollout: bool = False
    """Show the hint to the policy in its own rollouts too (an ablation), not only to the teacher."""

    def generate(self, error_kind: str, error_meta: dict[str, Any]) -> str | None:
        """Text of the template over another content of the same kind, None where the environment gives none."""
        return control_hint(error_kind, error_meta, "wrong")
