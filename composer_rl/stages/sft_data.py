"""Where the supervised stage gets its conversations: the testbed's generator, or a JSONL file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from composer_rl.envs.substrates.micro.corpus import Recoveries, conversations
from composer_rl.envs.substrates.micro.drafts import Noise
from composer_rl.envs.substrates.micro.tasks import Mix, generate
from composer_rl.errors import ConfigError
from composer_rl.hints.neutral import NEUTRAL_TEXT
from composer_rl.hints.templates import dispatch
from composer_rl.types import Message

CORPUS_STREAM = 1000
"""Added to the seed for the corpus, so that its tasks are not those an environment of that seed trains on."""

_ROLES = ("system", "user", "assistant", "tool")


def generated(
    *, seed: int, num_tasks: int, clean: bool, mix: Mix, noise: Noise, recoveries: Recoveries
) -> tuple[list[list[Message]], list[list[Message]]]:
    """First calls and recoveries of `num_tasks` tasks; the clean and the noisy phase get different tasks."""
    tasks = generate("train", seed=2 * (CORPUS_STREAM + seed) + int(clean), mix=mix)
    pairs = list(
        islice(
            conversations(
                tasks,
                render=_render_hint,
                neutral=NEUTRAL_TEXT,
                seed=2 * seed + int(clean),
                noise=noise,
                recoveries=recoveries,
                clean=clean,
            ),
            num_tasks,
        )
    )
    return [first for first, _ in pairs], [recovery for _, recovery in pairs]


def _render_hint(kind: str, context: dict[str, Any]) -> str | None:
    return dispatch(kind, context)  # type: ignore[arg-type]  # a HintContext made by the testbed


def read_corpus(path: Path) -> list[list[Message]]:
    """Conversations of a JSONL file.

    Raises ConfigError naming the line of the first record that is none, or an empty file.
    """
    found = [_conversation(line, f"{path}, line {number}") for number, line in _lines(path)]
    if not found:
        raise ConfigError(f"{path} has no conversations; each line must be a JSON object with messages")
    return found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as UTF-8 text: {error}") from error
    return ((number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip())


def _conversation(line: str, place: str) -> list[Message]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{place}: not JSON ({error.msg})") from error
    messages = record.get("messages") if isinstance(record, dict) else None
    if not isinstance(messages, list) or not messages:
        raise ConfigError(f"{place}: needs a non-empty list under messages")
    trained = 0
    for message in messages:
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise ConfigError(f"{place}: each message needs a role among {', '.join(_ROLES)}")
        if not isinstance(message.get("content"), str):
            raise ConfigError(f"{place}: each message needs its content as a string")
        if not isinstance(message.get("train", True), bool):
            raise ConfigError(f"{place}: train must be true or false, got {message['train']!r}")
        emphasis = message.get("emphasis", [])
        if not isinstance(emphasis, list) or not all(isinstance(piece, str) for piece in emphasis):
            raise ConfigError(f"{place}: emphasis must be a list of strings, got {emphasis!r}")
        trained += message["role"] == "assistant" and message.get("train", True)
    if not trained:
        raise ConfigError(f"{place}: has no assistant message to train on")
    return messages
