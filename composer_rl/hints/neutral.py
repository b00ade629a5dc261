"""A hint without content: shows what the mere presence of a hint does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NEUTRAL_TEXT = "Reminder: look at the error and try again."
"""The same for every error."""


@dataclass(kw_only=True)
class NeutralHintGenerator:
    """`hint=neutral`: one sentence that says nothing about the error."""

    in_rollout: bool = False
    """Show the hint to the policy in its own rollouts too (an ablation), not only to the teacher."""
    text: str = NEUTRAL_TEXT
    """The sentence, not empty."""

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError(f"text must not be empty, got {self.text!r}")

    def generate(self, error_kind: str, error_meta: dict[str, Any]) -> str | None:
        """The sentence, whatever the error."""
        return self.text
