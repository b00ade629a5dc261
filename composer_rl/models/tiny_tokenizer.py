"""Builds the tiny tokenizer: bytes, plus whole phrases as added tokens, plus chat markers.

Any text round-trips (bytes cover what the phrases do not), and decoding is exact, so a call sampled by id is the
same text for the environment and for the loss. The longest phrase wins at each place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD = "<|pad|>"
END = "<|end|>"
"""Ends every message; the eos token."""
ROLES = ("system", "user", "assistant", "tool")

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|' + message['role'] + '|>' -}}
{%- if message['role'] == 'assistant' -%}
{%- generation -%}
{{- message['content'] or '' -}}
{%- for call in message['tool_calls'] or [] -%}
{%- set function = call['function'] if 'function' in call else call -%}
{{- '{"name": "' + function['name'] + '", "arguments": ' -}}
{{- function['arguments'] if function['arguments'] is string else function['arguments'] | tojson -}}
{{- '}' -}}
{%- endfor -%}
{{- '<|end|>' -}}
{%- endgeneration -%}
{%- else -%}
{{- message['content'] + '<|end|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}
"""
"""Every message is `<|role|>content<|end|>`, whatever follows it, so that a prefix never changes."""

RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "open_pattern": r'\{"name": "(?P<name>[^"]+)", "arguments": ',
            "close_pattern": r"\}<\|end\|>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"close_pattern": r"<\|end\|>", "content": "text"},
    },
}
"""How transformers and TRL read a tool call back out of an answer."""


def build_tokenizer(phrases: Sequence[str]) -> PreTrainedTokenizerFast:
    """A tokenizer in which each of `phrases` is one token and everything else is bytes."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    specials = [PAD, END, *(f"<|{role}|>" for role in ROLES)]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: index for index, piece in enumerate([*specials, *alphabet])}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in specials])
    core.add_tokens([AddedToken(piece, normalized=False) for piece in phrases])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=specials[2:],
        clean_up_tokenization_spaces=False,
        padding_side="left",
        model_max_length=1024,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.response_template = RESPONSE_TEMPLATE
    return tokenizer
