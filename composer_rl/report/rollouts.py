"""Choose rollouts worth reading and prepare them for a page. Their text is the model's: nothing in it is trusted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from markupsafe import Markup

Outcome = Literal["solved", "recovered", "failed"]
"""Solved at the first attempt, solved later, or not."""

_LONGEST_TEXT = 12_000
"""Characters of one text that a page shows."""


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of a tool call."""

    name: str
    value: Markup
    """Highlighted and escaped."""


@dataclass(frozen=True, kw_only=True)
class TurnView:
    """One assistant turn."""

    tool: str | None
    """Name of the tool that was called; None when the text is no tool call."""
    arguments: tuple[Argument, ...]
    raw: Markup
    """The whole text, highlighted as JSON and escaped."""
    reward: float | None
    error_kind: str | None
    error_message: str | None
    observation: str | None
    """Text of the tool turn, None when it only repeats the error message."""
    hint: str | None


@dataclass(frozen=True, kw_only=True)
class RolloutView:
    """One rollout as a page shows it."""

    step: int
    split: str
    task_id: str
    outcome: Outcome
    reward: float | None
    stop_reason: str
    prompt: tuple[tuple[str, str], ...]
    """Role and text."""
    turns: tuple[TurnView, ...]

    @property
    def error_kinds(self) -> tuple[str, ...]:
        """Kinds that occur, each once, in order."""
        return tuple(dict.fromkeys(turn.error_kind for turn in self.turns if turn.error_kind))


def choose(records: Sequence[dict[str, Any]], *, per_side: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Up to `per_side` rollouts from early and as many from late training, each side in order of step.

    The sides are the first and the last third of the steps that have rollouts (with few of them, one half each). A
    side takes outcomes in turn, and within an outcome error kinds, so that a rare kind is seen; tasks that the other
    side has too come first, which lets a reader compare one task before and after.
    """
    steps = sorted({record["step"] for record in records})
    if not steps or per_side < 1:
        return [], []
    if len(steps) == 1:
        return _varied(records, per_side, shared=frozenset()), []
    num = max(1, len(steps) // 3)
    early = [record for record in records if record["step"] in set(steps[:num])]
    late = [record for record in records if record["step"] in set(steps[-num:])]
    shared = {record.get("task_id") for record in early} & {record.get("task_id") for record in late}
    # The newest of the late ones first: the end of training says most.
    return _varied(early, per_side, shared), _varied(late[::-1], per_side, shared)


def _varied(records: Sequence[dict[str, Any]], limit: int, shared: Iterable[Any]) -> list[dict[str, Any]]:
    """At most `limit` records, outcomes in turn and within an outcome error kinds in turn, in order of step."""
    known = set(shared)
    outcomes: dict[Outcome, dict[str, list[dict[str, Any]]]] = {}
    for record in sorted(records, key=lambda record: record.get("task_id") not in known):
        kind = next((turn.get("error_kind") for turn in record["turns"] if turn.get("error_kind")), "")
        outcomes.setdefault(outcome_of(record), {}).setdefault(str(kind), []).append(record)
    per_outcome = [_in_turn(list(kinds.values())) for kinds in outcomes.values()]
    return sorted(_in_turn(per_outcome)[:limit], key=lambda record: record["step"])


def _in_turn(queues: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The first of each queue, the second of each, and so on."""
    return [record for row in zip_longest(*queues) for record in row if record is not None]


def outcome_of(record: dict[str, Any]) -> Outcome:
    """How a rollout ended; a turn is solved at reward 1.0."""
    rewards = [turn.get("reward") for turn in record["turns"]]
    solved = [isinstance(reward, int | float) and reward >= 1.0 for reward in rewards]
    if solved and solved[0]:
        return "solved"
    return "recovered" if any(solved) else "failed"


def view(record: dict[str, Any]) -> RolloutView:
    """Prepare one rollout record (a line of rollouts.jsonl) for the page."""
    prompt = record.get("prompt")
    messages = [message for message in prompt if isinstance(message, dict)] if isinstance(prompt, list) else []
    return RolloutView(
        step=record["step"],
        split=str(record.get("split") or ""),
        task_id=str(record.get("task_id") or ""),
        outcome=outcome_of(record),
        reward=_number(record.get("reward")),
        stop_reason=str(record.get("stop_reason") or ""),
        prompt=tuple((str(message.get("role") or ""), _text(message.get("content"))) for message in messages),
        turns=tuple(_turn(turn) for turn in record["turns"]),
    )


def _turn(turn: dict[str, Any]) -> TurnView:
    text = _text(turn.get("text"))
    tool, arguments = _tool_call(text)
    message, observation = _optional(turn.get("error_message")), _optional(turn.get("observation"))
    return TurnView(
        tool=tool,
        arguments=arguments,
        raw=highlight(text, "json"),
        reward=_number(turn.get("reward")),
        error_kind=_optional(turn.get("error_kind")),
        error_message=message,
        observation=observation if observation != message else None,
        hint=_optional(turn.get("hint")),
    )


def _tool_call(text: str) -> tuple[str | None, tuple[Argument, ...]]:
    """Tool name and arguments when the text is a JSON object with a `name`, else (None, ())."""
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):
        return None, ()
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None, ()
    given = call.get("arguments")
    if not isinstance(given, dict):
        given = {} if given is None else {"arguments": given}
    return call["name"], tuple(Argument(name=str(name), value=_value(value)) for name, value in given.items())


def _value(value: Any) -> Markup:
    if isinstance(value, str):
        return highlight(value, "python")
    return highlight(json.dumps(value, ensure_ascii=False), "json")


def highlight(text: str, language: str) -> Markup:
    """`text` escaped, with spans of Pygments' short token classes. Unknown tokens stay plain text."""
    from markupsafe import Markup
    from pygments import highlight as pygmentize
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    # HtmlFormatter escapes &, <, >, " and ' in every token.
    return Markup(pygmentize(text, lexer, HtmlFormatter(nowrap=True)))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _optional(value: Any) -> str | None:
    return None if value is None else _text(value)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) > _LONGEST_TEXT:
        return f"{text[:_LONGEST_TEXT]}\n… {len(text) - _LONGEST_TEXT:,} more characters"
    return text
