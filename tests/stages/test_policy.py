"""Prompts that no rollout could begin with are named by their place in the user's file."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from composer_rl.errors import ConfigError
from composer_rl.stages.policy import check_prompt_lengths
from composer_rl.types import Task


class Prompts:
    """An environment that has only prompts."""

    def __init__(self, train: Sequence[str], heldout: Sequence[str]) -> None:
        self._splits = {"train": train, "heldout": heldout}

    def tasks(self, split: str) -> list[Task]:
        texts = self._splits[split]
        return [Task(task_id=text, prompt=[{"role": "user", "content": text}], payload={}) for text in texts]

    def describe(self, task: Task) -> str:
        return f"prompts.jsonl, line {len(task.task_id)}"


class Words:
    """A tokenizer with a token for each word."""

    def __init__(self) -> None:
        self.num_tokenized = 0

    def apply_chat_template(self, prompt: list[dict[str, str]], **kwargs: Any) -> str:
        from jinja2 import TemplateError

        if prompt[0]["content"] == "refused":
            raise TemplateError("roles must alternate")
        return prompt[0]["content"]

    def __call__(self, text: str, **kwargs: Any) -> dict[str, list[int]]:
        self.num_tokenized += 1
        return {"input_ids": list(range(len(text.split())))}


def check(train: Sequence[str], heldout: Sequence[str] = ()) -> Words:
    """A context of 10 tokens, 4 of which are for the answer."""
    model = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: SimpleNamespace(max_position_embeddings=10)))
    tokenizer = Words()
    check_prompt_lengths(Prompts(train, heldout), tokenizer, model, max_new_tokens=4)  # type: ignore[arg-type]
    return tokenizer


def test_a_prompt_that_just_fits_passes_and_short_ones_are_not_tokenized() -> None:
    assert check(["a b c", "aa bb cc dd ee ff"]).num_tokenized == 1


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_a_prompt_that_is_too_long_is_named(split: str) -> None:
    with pytest.raises(ConfigError) as info:
        check(**{"train": ["a"], split: ["a", "a b c d e f g"]})
    assert str(info.value) == (
        "the prompt of prompts.jsonl, line 13 has 7 tokens; with rollout.max_new_tokens=4 at most 6 fit the model's "
        "context of 10"
    )


def test_a_prompt_that_the_template_refuses_is_named() -> None:
    with pytest.raises(ConfigError, match=r"refuses the prompt of prompts.jsonl, line 7: roles must alternate"):
        check(["a"], ["refused"])
