"""A reward that teaches nothing."""

from __future__ import annotations

from typing import Any


def flat(completions: list[Any], **kwargs: Any) -> list[float]:
    """0 for every completion."""
    return [0.0] * len(completions)
