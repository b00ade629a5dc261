"""Follow-up turns by ids: equal to the full render, for templates of several families."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from composer_rl.errors import ConfigError, RolloutError
from composer_rl.rollouts import splice
from composer_rl.rollouts.splice import TurnRenderer
from tests.rollouts.helpers import CHATML, CHATML_FORGETTING, HEADERS, NO_TOOLS, TEMPLATES, build_tokenizer

ENDS = {"chatml": "<|im_end|>", "headers": "<|eot|>", "no_tools": "<|eot|>"}


def tool(text: str) -> dict[str, str]:
    return {"role": "tool", "content": text}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def encode(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def render(tokenizer: Any, messages: list[dict[str, str]]) -> list[int]:
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return encode(tokenizer, text)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize(
    "turns",
    [
        [[tool("value 3")]],
        [[tool("AssertionError: f(0) == 17, got\n\n 4 ")], [tool("")], [tool("ünïcode ☃ \t x")]],
        [[tool("no"), user("Reminder: the tool is write.")], [tool("still no")]],
        [[tool("first result"), tool("second result")], [tool("third")]],
    ],
)
def test_growing_by_ids_equals_the_full_render(name: str, turns: list[list[dict[str, str]]]) -> None:
    tokenizer = build_tokenizer(TEMPLATES[name], eos=ENDS[name])
    renderer = TurnRenderer(tokenizer)
    prompt = [user("Fix it: def f(x): ...")]
    ids, conversation = renderer.prompt_ids(prompt), list(prompt)
    for number, messages in enumerate(turns):
        sampled = encode(tokenizer, f"call {number}" + ENDS[name])
        ids = ids + sampled + renderer.ending_ids(sampled) + renderer.following_ids([messages])[0]
        if name == "no_tools":
            messages = [user("\n\n".join(message["content"] for message in messages))]
        conversation += [answer(f"call {number}"), *messages]
    assert ids == render(tokenizer, conversation)


def test_two_tool_results_are_rendered_as_the_template_joins_them() -> None:
    tokenizer = build_tokenizer(CHATML)
    ids = TurnRenderer(tokenizer).following_ids([[tool("a"), tool("b")]])[0]
    assert tokenizer.decode(ids) == (
        "\n<|im_start|>user\n<tool_response>\na\n</tool_response>\n<tool_response>\nb\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_turn_that_was_cut_off_is_closed() -> None:
    tokenizer = build_tokenizer(CHATML)
    renderer = TurnRenderer(tokenizer)
    cut = encode(tokenizer, '{"name": "wri')
    whole = [
        *renderer.prompt_ids([user("hi")]),
        *cut,
        *renderer.ending_ids(cut),
        *renderer.following_ids([[tool("x")]])[0],
    ]
    assert whole == render(tokenizer, [user("hi"), answer('{"name": "wri'), tool("x")])
    other_end = [*cut, tokenizer.convert_tokens_to_ids("<|endoftext|>")]
    assert renderer.ending_ids(other_end) == [tokenizer.convert_tokens_to_ids("<|im_end|>")]
    assert renderer.ending_ids([*cut, tokenizer.eos_token_id]) == []


def test_stop_ids_hold_eos_given_ids_and_the_end_of_turn() -> None:
    tokenizer = build_tokenizer(CHATML, eos="<|endoftext|>")
    id_of = tokenizer.convert_tokens_to_ids
    renderer = TurnRenderer(tokenizer, stop_ids=[id_of("<|eot|>")])
    assert renderer.stop_ids == (id_of("<|endoftext|>"), id_of("<|eot|>"), id_of("<|im_end|>"))


def test_a_pad_token_that_is_the_end_token_changes_nothing() -> None:
    one = TurnRenderer(build_tokenizer(CHATML)).following_ids([[tool("x")]])
    other = TurnRenderer(build_tokenizer(CHATML, pad="<|pad|>")).following_ids([[tool("x")]])
    assert one == other


def test_a_template_without_tools_gets_user_turns_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = build_tokenizer(NO_TOOLS, eos="<|eot|>")
    with caplog.at_level(logging.WARNING):
        renderer = TurnRenderer(tokenizer)
    assert renderer.facts.tool_role == "user"
    assert "rendered as user turns" in caplog.text
    text = tokenizer.decode(renderer.following_ids([[tool("oops"), user("look")]])[0])
    assert text == "\n<|start|>user\noops\n\nlook<|eot|>\n<|start|>assistant\n"


def test_a_template_that_swallows_tool_turns_counts_as_one_without() -> None:
    swallowing = HEADERS.replace(
        "{%- for message in messages -%}", "{%- for message in messages if message['role'] != 'tool' -%}"
    )
    assert TurnRenderer(build_tokenizer(swallowing, eos="<|eot|>")).facts.tool_role == "user"


@pytest.mark.parametrize(
    ("template", "eos", "reason"),
    [
        (CHATML_FORGETTING, "<|im_end|>", r"reads differently once a tool turn follows: .*think"),
        (CHATML.replace("<|im_end|>", ""), "<|im_end|>", r"no special token"),
        (CHATML.replace("'<|im_start|>assistant\\n'", "'<|im_start|>model\\n'"), "<|im_end|>", r"generation prompt"),
        ("{{ messages[9]['content'] + '' }}", "<|im_end|>", r"refuses a plain conversation"),
    ],
)
def test_an_unfit_template_is_refused_where_turns_are_needed(template: str, eos: str, reason: str) -> None:
    renderer = TurnRenderer(build_tokenizer(template, eos=eos))
    with pytest.raises(ConfigError, match=reason) as caught:
        renderer.following_ids([[tool("x")]])
    assert "env.max_turns=1" in str(caught.value)
    assert renderer.stop_ids == (renderer._tokenizer.eos_token_id,)


def test_the_number_of_turns_must_not_change_earlier_ones() -> None:
    numbered = CHATML.replace(
        "'<|im_start|>' + message['role']", "'<|im_start|>' + (messages | length > 4) | string + message['role']"
    )
    with pytest.raises(ConfigError, match="longer conversation"):
        _ = TurnRenderer(
            build_tokenizer(
                numbered.replace(
                    "'<|im_start|>assistant\\n'", "'<|im_start|>' + (messages | length > 4) | string + 'assistant\\n'"
                )
            )
        ).facts


def test_trls_training_variant_replaces_a_template_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splice, "_training_variant", lambda tokenizer: CHATML)
    renderer = TurnRenderer(build_tokenizer(CHATML_FORGETTING))
    assert renderer.chat_template == CHATML
    assert renderer.following_ids([[tool("x")]]) == TurnRenderer(build_tokenizer(CHATML)).following_ids([[tool("x")]])


def test_trl_knows_the_templates_it_ships() -> None:
    from importlib.resources import files

    shipped = (files("trl") / "chat_templates" / "qwen3.jinja").read_text(encoding="utf-8")
    renderer = TurnRenderer(build_tokenizer(shipped))
    assert renderer.chat_template != shipped
    assert renderer.facts.tool_role == "tool"


def test_template_arguments_reach_every_render() -> None:
    template = CHATML.replace("'<|im_start|>assistant\\n'", "'<|im_start|>assistant\\n' + (mark or '')")
    tokenizer = build_tokenizer(template)
    renderer = TurnRenderer(tokenizer, template_arguments={"mark": ""})
    assert tokenizer.decode(renderer.prompt_ids([user("hi")])).endswith("assistant\n")
    with pytest.raises(ConfigError, match="generation prompt"):
        _ = TurnRenderer(tokenizer, template_arguments={"mark": "!"}).facts


def test_messages_the_template_refuses_are_named() -> None:
    renderer = TurnRenderer(build_tokenizer(NO_TOOLS, eos="<|eot|>"))
    with pytest.raises(RolloutError, match=r"refuses a conversation of \['system', 'user'\]: unknown role"):
        renderer.prompt_ids([{"role": "system", "content": "be kind"}, user("hi")])


def test_no_template_is_an_error() -> None:
    tokenizer = build_tokenizer(CHATML)
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="no chat template"):
        TurnRenderer(tokenizer)


def test_results_are_remembered_and_cannot_be_spoilt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splice, "CACHE_SIZE", 2)
    renderer = TurnRenderer(build_tokenizer(CHATML))
    first = renderer.following_ids([[tool("x")]])[0]
    first.append(-1)
    assert renderer.following_ids([[tool("x")], [tool("y")], [tool("z")]])[0] == first[:-1]
    assert len(renderer._turns) == 2
    renderer.prompt_ids([user("hi")]).append(-1)
    assert -1 not in renderer.prompt_ids([user("hi")])
