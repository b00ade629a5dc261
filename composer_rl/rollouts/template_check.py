"""What a chat template does around an assistant turn, found by rendering a probe conversation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from composer_rl.types import Message

Render = Callable[[Sequence["Message"], bool], list[int]]
"""(messages, add_generation_prompt) -> ids. Raises `REFUSALS` where the template refuses the messages."""

ASK: Message = {"role": "user", "content": "Try it."}
ANSWERS: tuple[Message, Message] = (
    {"role": "assistant", "content": "done 4"},
    {"role": "assistant", "content": "all right"},
)
"""Without a common ending, so that what follows an answer can be told apart from it."""
RESULT: Message = {"role": "tool", "content": "value 17"}
NOTE: Message = {"role": "user", "content": "look again"}
DUMMY: tuple[Message, Message] = (ASK, ANSWERS[0])
"""The conversation that follow-up turns are rendered behind."""


class UnfitTemplateError(Exception):
    """The template cannot carry a conversation that grows by appending ids; the text says why."""


@dataclass(frozen=True, kw_only=True)
class TemplateFacts:
    """What `examine` found."""

    dummy_ids: list[int]
    """Ids of DUMMY up to and including the token that ends the answer."""
    closing_ids: list[int]
    """What the template puts between an answer's text and the end of its turn; the last one is the end token."""
    tool_role: str
    """Role that shows tool turns: `tool`, or `user` where the template refuses or swallows them."""
    merges_users: bool
    """Whether two user turns in a row are refused, so that they have to become one."""


def refusals() -> tuple[type[Exception], ...]:
    """What rendering raises when a template refuses a conversation."""
    from jinja2 import TemplateError

    return (TemplateError, TypeError, KeyError)


def as_roles(messages: Sequence[Message], *, tool_role: str, merges_users: bool) -> list[Message]:
    """Messages in the roles that the template knows."""
    out: list[Message] = []
    for message in messages:
        role = tool_role if message["role"] == "tool" else message["role"]
        if merges_users and out and role == "user" and out[-1]["role"] == "user":
            out[-1] = {"role": "user", "content": f"{out[-1]['content']}\n\n{message['content']}"}
        else:
            out.append({**message, "role": role})
    return out


def examine(render: Render, decode: Callable[[Sequence[int]], str], stops: frozenset[int]) -> TemplateFacts:
    """Find what `TemplateFacts` holds and check that appending ids equals rendering the whole conversation.

    Args:
        render: renders and tokenises.
        decode: ids to text, special tokens kept.
        stops: ids that can end a turn (special tokens and stop ids).

    Raises:
        UnfitTemplateError: a plain conversation is refused, an answer has no end token, the generation prompt is not
            how an answer begins, or an earlier turn reads differently once later ones follow.
    """
    try:
        return _examine(render, decode, stops)
    except refusals() as error:
        raise UnfitTemplateError(f"it refuses a plain conversation: {error}") from error


def _examine(render: Render, decode: Callable[[Sequence[int]], str], stops: frozenset[int]) -> TemplateFacts:
    first, second = render([ASK, ANSWERS[0]], False), render([ASK, ANSWERS[1]], False)
    tail = _common_ending(first, second)
    ends = [place for place, token in enumerate(tail) if token in stops]
    if not ends:
        raise UnfitTemplateError(
            f"it closes an assistant turn with {decode(tail)!r}, in which there is no special token, so a sampled "
            "turn would have no end"
        )
    closing = tail[: ends[0] + 1]
    beyond = len(tail) - len(closing)
    dummy_ids, second_ids = first[: len(first) - beyond], second[: len(second) - beyond]
    tool_role = _tool_role(render, decode)
    merges = not _accepts(render, [*DUMMY, NOTE, NOTE])
    facts = TemplateFacts(dummy_ids=dummy_ids, closing_ids=closing, tool_role=tool_role, merges_users=merges)
    _check_growth(render, decode, facts, second_ids)
    return facts


def _check_growth(
    render: Render, decode: Callable[[Sequence[int]], str], facts: TemplateFacts, second: list[int]
) -> None:
    start = render([ASK], True)
    if facts.dummy_ids[: len(start)] != start:
        raise UnfitTemplateError(
            "its generation prompt is not how an assistant turn begins: "
            + _difference(decode, start, facts.dummy_ids[: len(start)])
        )
    result: Message = {**RESULT, "role": facts.tool_role}
    grown = list(facts.dummy_ids)
    conversation = [*DUMMY]
    for new, answer in ((result, second[len(start) :]), (NOTE, [])):
        whole = render([*DUMMY, new], True)
        if whole[: len(facts.dummy_ids)] != facts.dummy_ids:
            raise UnfitTemplateError(
                f"an assistant turn reads differently once a {new['role']} turn follows: "
                + _difference(decode, facts.dummy_ids, whole)
            )
        grown += whole[len(facts.dummy_ids) :] + answer
        conversation += [new, ANSWERS[1]] if answer else [new]
    whole = render(conversation, True)
    if whole != grown:
        raise UnfitTemplateError(
            "earlier turns read differently in a longer conversation: " + _difference(decode, grown, whole)
        )


def _tool_role(render: Render, decode: Callable[[Sequence[int]], str]) -> str:
    if _accepts(render, [*DUMMY, RESULT]) and RESULT["content"] in decode(render([*DUMMY, RESULT], True)):
        return "tool"
    return "user"


def _accepts(render: Render, messages: Sequence[Message]) -> bool:
    try:
        render(messages, True)
    except refusals():
        return False
    return True


def _common_ending(first: Sequence[int], second: Sequence[int]) -> list[int]:
    count = 0
    while count < min(len(first), len(second)) and first[-1 - count] == second[-1 - count]:
        count += 1
    return list(first[len(first) - count :])


def _difference(decode: Callable[[Sequence[int]], str], expected: Sequence[int], found: Sequence[int]) -> str:
    place = 0
    while place < min(len(expected), len(found)) and expected[place] == found[place]:
        place += 1
    window = slice(max(0, place - 6), place + 10)
    return f"...{decode(expected[window])!r} became ...{decode(found[window])!r}"
