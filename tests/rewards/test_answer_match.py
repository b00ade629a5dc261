"""Exact match with a dataset column."""

from __future__ import annotations

from typing import Any

import pytest

from composer_rl.rewards.answer_match import AnswerMatch
from composer_rl.rewards.base import as_trl


def score(
    reward: AnswerMatch, completions: list[Any], answers: list[Any], column: str = "answer"
) -> list[float | None]:
    ids = [[1]] * len(completions)
    return as_trl(reward)(prompts=completions, completions=completions, completion_ids=ids, **{column: answers})


def test_whole_text_of_strings_and_of_the_last_assistant_message() -> None:
    chat = [
        {"role": "assistant", "content": "3"},
        {"role": "tool", "content": "no"},
        {"role": "assistant", "content": " 4 "},
    ]
    assert score(AnswerMatch(), ["4", "5\n", chat, []], [4, "4", "4", "4"]) == [1.0, 0.0, 1.0, 0.0]


def test_the_last_match_of_a_pattern_counts() -> None:
    reward = AnswerMatch(pattern=r"#### (.+)", column="gold")
    assert score(reward, ["#### 3 \n#### 4", "4", "#### 5"], ["4", "4", "4"], "gold") == [1.0, 0.0, 0.0]


def test_case_and_missing_answers() -> None:
    assert score(AnswerMatch(ignore_case=True), ["Yes", "no"], ["yes", None]) == [1.0, None]
    assert score(AnswerMatch(), ["Yes"], ["yes"]) == [0.0]


@pytest.mark.parametrize("pattern", ["(", "no group", "(a)(b)"])
def test_a_pattern_needs_exactly_one_group(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern must"):
        AnswerMatch(pattern=pattern)


def test_a_missing_column_lists_the_ones_there_are() -> None:
    with pytest.raises(ValueError, match="column 'answer' is not in the dataset; its columns: gold"):
        score(AnswerMatch(), ["4"], ["4"], "gold")
    with pytest.raises(ValueError, match="column must name a dataset column"):
        AnswerMatch(column="")
