"""A reward that reads a column of the dataset."""

from __future__ import annotations

from typing import Any


def by_solution(completions: list[Any], solution: list[str], strict: bool = False) -> list[float]:
    """Never called: no dataset of the tests has the column."""
    return [0.0] * len(completions)
