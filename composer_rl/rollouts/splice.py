"""Token ids of the turns that follow an assistant turn, so that a conversation grows by appending ids only.

What the policy sampled is never decoded and tokenised again. What comes after it (a tool turn, a hint, the header of
the next assistant turn) is rendered with the tokenizer's own chat template behind a dummy conversation, and the ids
behind the dummy's end-of-turn token are taken. This is exact only if the template leaves earlier turns as they were
when later ones are added. `template_check` holds it to that on construction; a template that edits its history
(Qwen3 drops old reasoning, for instance) is replaced by TRL's training variant where TRL has one, or refused.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from composer_rl.errors import ConfigError, RolloutError
from composer_rl.rollouts.template_check import (
    DUMMY,
    TemplateFacts,
    UnfitTemplateError,
    as_roles,
    examine,
    refusals,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from composer_rl.types import Message

logger = logging.getLogger(__name__)

CACHE_SIZE = 8192
"""Rendered prompts and rendered follow-up turns that are kept, each."""


class TurnRenderer:
    """Renders prompts and follow-up turns of one tokenizer into token ids.

    Args:
        tokenizer: has a chat template, which is read once, now.
        stop_ids: ids that end sampling besides the tokenizer's eos and the template's end of turn.
        template_arguments: extra variables of the template, the same in every call (`enable_thinking`, `tools`).

    Raises:
        ConfigError: there is no chat template.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        stop_ids: Sequence[int] = (),
        template_arguments: dict[str, Any] | None = None,
    ) -> None:
        if not tokenizer.chat_template:
            raise ConfigError("the tokenizer has no chat template; give it one, or bring a model that has one")
        self._tokenizer = tokenizer
        self._arguments = dict(template_arguments or {})
        self._given_stops = [token for token in (tokenizer.eos_token_id, *stop_ids) if token is not None]
        self.chat_template = str(tokenizer.get_chat_template())
        """The template in use: the tokenizer's, or TRL's training variant of it."""
        self._problem: str | None = None
        self._facts = self._settle()
        if self._facts is not None and self._facts.tool_role != "tool":
            logger.warning("the chat template has no role for tools: tool turns are rendered as user turns")
        self._prompts: OrderedDict[str, list[int]] = OrderedDict()
        self._turns: OrderedDict[str, list[int]] = OrderedDict()

    @property
    def facts(self) -> TemplateFacts:
        """What the template does around an assistant turn.

        Raises ConfigError when it cannot carry a growing conversation (the message says where it fails) and TRL has
        no training variant that can; one-turn rollouts need no facts.
        """
        if self._facts is None:
            raise ConfigError(
                f"this chat template cannot be used for rollouts of several turns, because {self._problem}; give the "
                "tokenizer one that leaves earlier turns unchanged, or set env.max_turns=1"
            )
        return self._facts

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Every id that ends a sampled turn: the tokenizer's eos, the given ones, the template's end of turn."""
        ends = [] if self._facts is None else self._facts.closing_ids[-1:]
        return tuple(dict.fromkeys([*self._given_stops, *ends]))

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a prompt up to and including the header of the assistant's turn.

        Raises RolloutError when the template refuses the messages.
        """
        key = json.dumps(list(messages))
        if key not in self._prompts:
            self._prompts[key] = self._encode([self._text(messages, generate=True)])[0]
        return self._recall(self._prompts, [key])[0]

    def following_ids(self, turns: Sequence[Sequence[Message]]) -> list[list[int]]:
        """For each list of messages, the ids it adds behind an ended assistant turn, next assistant header included.

        The messages of one list are rendered together, so a template that joins two tool results does so here.
        Raises RolloutError when the template refuses messages, or changes the turn before them.
        """
        keys = [json.dumps(list(messages)) for messages in turns]
        missing = {key: messages for key, messages in zip(keys, turns, strict=True) if key not in self._turns}
        if missing:
            facts = self.facts
            texts = [
                self._text(
                    [*DUMMY, *as_roles(new, tool_role=facts.tool_role, merges_users=facts.merges_users)], generate=True
                )
                for new in missing.values()
            ]
            start = len(facts.dummy_ids)
            for key, ids in zip(missing, self._encode(texts), strict=True):
                if ids[:start] != facts.dummy_ids:
                    raise RolloutError(f"the chat template changes the assistant turn before these messages: {key}")
                self._turns[key] = ids[start:]
        return self._recall(self._turns, keys)

    def ending_ids(self, sampled: Sequence[int]) -> list[int]:
        """What a sampled turn lacks before another turn can follow: nothing if it drew the end-of-turn token."""
        closing = self.facts.closing_ids
        return [] if sampled[-1] == closing[-1] else list(closing)

    def texts(self, sampled: Sequence[Sequence[int]]) -> list[str]:
        """Sampled turns as text, without special tokens."""
        return self._tokenizer.batch_decode([list(ids) for ids in sampled], skip_special_tokens=True)

    def _settle(self) -> TemplateFacts | None:
        """Facts of the template, or of TRL's variant of it; None, with the problem noted, when neither is fit."""
        try:
            return self._examine()
        except UnfitTemplateError as problem:
            self._problem = str(problem)
        variant = _training_variant(self._tokenizer)
        if variant is None:
            return None
        original, self.chat_template = self.chat_template, variant
        try:
            facts = self._examine()
        except UnfitTemplateError as problem:
            self._problem, self.chat_template = str(problem), original
            return None
        logger.info(
            "TRL's training variant of the chat template is used, because the original cannot be: %s", self._problem
        )
        return facts

    def _examine(self) -> TemplateFacts:
        def render(messages: Sequence[Message], generate: bool) -> list[int]:
            return self._encode([self._render(messages, generate=generate)])[0]

        def decode(ids: Sequence[int]) -> str:
            return str(self._tokenizer.decode(list(ids)))

        return examine(render, decode, frozenset([*self._tokenizer.all_special_ids, *self._given_stops]))

    def _render(self, messages: Sequence[Message], *, generate: bool) -> str:
        text = self._tokenizer.apply_chat_template(
            list(messages),
            chat_template=self.chat_template,
            add_generation_prompt=generate,
            tokenize=False,
            **self._arguments,
        )
        return str(text)

    def _text(self, messages: Sequence[Message], *, generate: bool) -> str:
        try:
            return self._render(messages, generate=generate)
        except refusals() as error:
            roles = [message["role"] for message in messages]
            raise RolloutError(f"the chat template refuses a conversation of {roles}: {error}") from error

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return self._tokenizer(texts, add_special_tokens=False)["input_ids"]

    @staticmethod
    def _recall(store: OrderedDict[str, list[int]], keys: Sequence[str]) -> list[list[int]]:
        """Copies of stored ids, which become the most recent; the oldest beyond CACHE_SIZE go."""
        found = [list(store[key]) for key in keys]
        for key in keys:
            store.move_to_end(key)
        while len(store) > CACHE_SIZE:
            store.popitem(last=False)
        return found


def _training_variant(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """TRL's prefix-preserving edition of a template it knows, else None."""
    from trl.chat_template_utils import get_training_chat_template

    known: tuple[type[Exception], ...] = (ValueError, *refusals())
    try:
        return get_training_chat_template(tokenizer)
    except known:
        return None
