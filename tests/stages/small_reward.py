"""A reward that varies within a group of random byte strings."""

from __future__ import annotations

from typing import Any


def printable(completions: list[list[dict[str, Any]]], **kwargs: Any) -> list[float]:
    """Share of printable ASCII characters."""
    texts = [completion[-1]["content"] for completion in completions]
    return [sum(" " <= character <= "~" for character in text) / max(len(text), 1) for text in texts]
