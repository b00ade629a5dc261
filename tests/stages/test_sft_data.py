"""Conversations of the generator and of a user's file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from composer_rl.envs.micro import MicroEnvironment
from composer_rl.envs.substrates.micro.corpus import Recoveries
from composer_rl.envs.substrates.micro.drafts import Noise
from composer_rl.envs.substrates.micro.tasks import Mix
from composer_rl.errors import ConfigError
from composer_rl.hints.neutral import NEUTRAL_TEXT
from composer_rl.hints.templates import PREFIX
from composer_rl.stages.sft_data import generated, read_corpus

GOOD = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}


def make(*, seed: int = 0, clean: bool = False) -> tuple[list[list[dict[str, object]]], list[list[dict[str, object]]]]:
    return generated(seed=seed, num_tasks=200, clean=clean, mix=Mix(), noise=Noise(), recoveries=Recoveries())


def test_the_generator_is_deterministic_and_its_phases_differ() -> None:
    assert make() == make()
    assert make()[0] != make(seed=1)[0]
    assert make()[0] != make(clean=True)[0]


def test_hints_are_those_of_the_templates() -> None:
    hints = [
        message["content"] for conversation in make()[1] for message in conversation[2:] if message["role"] == "user"
    ]
    assert NEUTRAL_TEXT in hints
    assert all(str(hint).startswith(PREFIX) for hint in hints)


def test_the_corpus_shares_no_prompt_with_the_held_out_tasks() -> None:
    heldout = {task.prompt[1]["content"] for task in MicroEnvironment(num_heldout=400).tasks("heldout")}
    assert not heldout & {str(conversation[1]["content"]) for conversation in make()[0]}


def test_a_file_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(GOOD) + "\n\n" + json.dumps(GOOD) + "\n")
    assert read_corpus(path) == [GOOD["messages"]] * 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: not JSON"),
        ("[]", "line 2: needs a non-empty list under messages"),
        ('{"messages": []}', "line 2: needs a non-empty list"),
        ('{"messages": [{"role": "bot", "content": "a"}]}', "line 2: each message needs a role"),
        ('{"messages": [{"role": "user"}]}', "line 2: each message needs its content"),
        ('{"messages": [{"role": "assistant", "content": "a", "train": 1}]}', "train must be true or false, got 1"),
        ('{"messages": [{"role": "assistant", "content": "a", "emphasis": "a"}]}', "emphasis must be a list"),
        ('{"messages": [{"role": "user", "content": "a"}]}', "no assistant message to train on"),
    ],
)
def test_a_wrong_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(GOOD) + "\n" + line + "\n")
    with pytest.raises(ConfigError, match=message):
        read_corpus(path)


def test_an_empty_or_binary_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text("\n")
    with pytest.raises(ConfigError, match="has no conversations"):
        read_corpus(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_corpus(path)
