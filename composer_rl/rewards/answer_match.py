"""Exact match of the completion's last text with an answer column of the user's dataset."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from composer_rl.rewards.base import RewardBatch, RewardFunction


@dataclass(kw_only=True)
class AnswerMatch(RewardFunction):
    """1 when the answer found in the last message equals the row's answer, else 0; None where the row has none."""

    column: str = "answer"
    """Dataset column that holds the right answer; its values are compared as text."""
    pattern: str | None = None
    """Regular expression with one group that finds the answer in the text, the last match counts (for instance
    `####\\s*(.+)`); None compares the whole text."""
    ignore_case: bool = False
    """Compare without regard to upper and lower case."""

    def __post_init__(self) -> None:
        if not self.column:
            raise ValueError("column must name a dataset column, got an empty name")
        if self.pattern is None:
            return
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise ValueError(f"pattern must be a regular expression, got {self.pattern!r}: {error}") from error
        if groups != 1:
            raise ValueError(f"pattern must have exactly one group, got {self.pattern!r} with {groups}")

    @property
    def name(self) -> str:
        return "answer_match"

    def required_columns(self) -> dict[str, str]:
        """The answer's."""
        return {self.column: "column"}

    def score(self, batch: RewardBatch) -> list[float | None]:
        """One of 1.0, 0.0 and None per completion.

        Raises:
            ValueError: when the dataset has no such column.
        """
        if self.column not in batch.columns:
            known = ", ".join(sorted(batch.columns)) or "none"
            raise ValueError(f"column {self.column!r} is not in the dataset; its columns: {known}")
        answers = batch.columns[self.column]
        return [self._score_one(text, answer) for text, answer in zip(batch.completions, answers, strict=True)]

    def _score_one(self, completion: Any, answer: Any) -> float | None:
        if answer is None:
            return None
        found = self._find(last_text(completion))
        wanted = str(answer).strip()
        if self.ignore_case:
            found, wanted = found.casefold() if found is not None else None, wanted.casefold()
        return float(found == wanted)

    def _find(self, text: str) -> str | None:
        if self.pattern is None:
            return text.strip()
        matches = re.findall(self.pattern, text)
        return matches[-1].strip() if matches else None


def last_text(completion: Any) -> str:
    """Text of a completion: itself, or the content of its last assistant message ("" without one)."""
    if isinstance(completion, str):
        return completion
    spoken = [message for message in completion if message.get("role") == "assistant"]
    return str(spoken[-1].get("content") or "") if spoken else ""
