"""The tiny tokenizer: exact round trips, one token a phrase, and a chat template that TRL can grow."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from composer_rl.envs.substrates.micro.vocabulary import phrases
from composer_rl.models.tiny_tokenizer import END, PAD, build_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer(phrases())


TOKENIZER = build_tokenizer(phrases())


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_text_comes_back(text: str) -> None:
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    assert TOKENIZER.decode(ids) == text


def test_phrases_are_single_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    for phrase in phrases():
        assert len(tokenizer.encode(phrase, add_special_tokens=False)) == 1, phrase


def test_pad_and_end_are_two_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.pad_token == PAD
    assert tokenizer.eos_token == END
    assert tokenizer.pad_token_id != tokenizer.eos_token_id


def test_trl_accepts_the_template(tokenizer: PreTrainedTokenizerFast) -> None:
    from trl import chat_template_utils as trl_templates

    assert trl_templates.supports_tool_calling(tokenizer)
    assert trl_templates.is_chat_template_prefix_preserving(tokenizer)
    assert trl_templates.has_generation_markers(tokenizer.chat_template)


def test_a_call_is_read_back_from_the_ids(tokenizer: PreTrainedTokenizerFast) -> None:
    from trl.chat_template_utils import parse_response

    call = '{"name": "write", "arguments": {"function": "calc", "text": "return 1"}}'
    prefix = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, return_dict=False
    )
    ids = tokenizer.encode(call + END, add_special_tokens=False)
    parsed = parse_response(tokenizer, ids, prefix=prefix)
    function = parsed["tool_calls"][0]["function"]
    assert function == {"name": "write", "arguments": {"function": "calc", "text": "return 1"}}


def test_a_rendered_tool_call_is_the_text_of_the_call(tokenizer: PreTrainedTokenizerFast) -> None:
    function = {"name": "write", "arguments": {"function": "calc", "text": "return 1"}}
    structured = [{"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}]
    text = '{"name": "write", "arguments": {"function": "calc", "text": "return 1"}}'
    plain = [{"role": "assistant", "content": text}]
    assert tokenizer.apply_chat_template(structured, tokenize=False) == tokenizer.apply_chat_template(
        plain, tokenize=False
    )


def test_generation_markers_cover_answers_and_their_end(tokenizer: PreTrainedTokenizerFast) -> None:
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "write"},
        {"role": "tool", "content": "ToolError: no tool write"},
        {"role": "assistant", "content": "put"},
    ]
    encoded = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
    marked = [i for i, on in zip(encoded["input_ids"], encoded["assistant_masks"], strict=True) if on]
    assert tokenizer.decode(marked) == f"write{END}put{END}"
