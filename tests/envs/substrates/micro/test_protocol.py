"""Prompts and tool calls: what is shown, what is read, and which error comes back."""

from __future__ import annotations

import json

import pytest

from composer_rl.envs.substrates.micro.contents import gold_call
from composer_rl.envs.substrates.micro.hidden_rules import FUNCTION_KEY, KEY_OF, KEYS, TOOL_OF, TOOLS
from composer_rl.envs.substrates.micro.protocol import (
    CallError,
    ToolCall,
    prompt,
    read_call,
    resolve,
    show_value,
    to_task,
)
from composer_rl.envs.substrates.micro.tasks import TaskSpec


def test_the_prompt_names_all_tools_and_neither_the_right_one_nor_its_key(train_specs: list[TaskSpec]) -> None:
    systems = {prompt(spec)[0]["content"] for spec in train_specs}
    assert len(systems) == 1
    assert set(TOOLS) <= set(systems.pop().split())
    for spec in train_specs:
        text = prompt(spec)[1]["content"]
        assert text.startswith(f"repo {spec.repository}\n")
        assert f"def {spec.target.name}({spec.target.parameter}):" in text
        assert spec.target.body not in text.split("FAILED")[0].split(f"def {spec.target.name}")[-1]
        assert not any(word in text.replace('"', " ").split() for word in TOOLS)


def test_a_vague_task_shows_its_constant_only_in_the_assert(train_specs: list[TaskSpec]) -> None:
    vague = [spec for spec in train_specs if spec.target.vague]
    assert vague
    for spec in vague:
        assert str(spec.target.n) not in spec.target.doc
        assert str(spec.target.n) in prompt(spec)[1]["content"].rsplit("==", 1)[1]


def test_the_rules_are_one_tool_a_repository_and_one_key_a_tool() -> None:
    assert sorted(TOOL_OF.values()) == sorted(TOOLS)
    assert set(KEY_OF) == set(TOOLS)
    assert set(KEY_OF.values()) == set(KEYS)


def test_the_gold_call_resolves_to_the_body(train_specs: list[TaskSpec]) -> None:
    for spec in train_specs[:50]:
        assert resolve(spec, read_call(gold_call(spec).render())) == spec.target.body


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"name": "write"}', '{"name": 3, "arguments": {}}', '{"name": "a", "arguments": []}'],
)
def test_no_call_is_json_decode(text: str) -> None:
    with pytest.raises(CallError, match="JSONDecodeError: ") as caught:
        read_call(text)
    assert caught.value.kind == "json_decode"


def test_deep_nesting_and_lone_surrogates_are_read_or_refused() -> None:
    with pytest.raises(CallError) as caught:
        read_call("[" * 100_000)
    assert caught.value.kind == "json_decode"
    assert read_call('{"name": "\\ud800", "arguments": {}}').tool == "\ud800"


def wrong(spec: TaskSpec, **changes: object) -> ToolCall:
    arguments = dict(gold_call(spec).arguments)
    for key, value in changes.items():
        if value is None:
            arguments.pop(key)
        else:
            arguments[key] = value
    return ToolCall(tool=spec.tool, arguments=arguments)


def test_each_fault_has_its_kind(train_specs: list[TaskSpec]) -> None:
    spec = train_specs[0]
    other_tool = next(tool for tool in TOOLS if tool != spec.tool)
    other_key = next(key for key in KEYS if key != spec.key)
    cases = {
        f"ToolError: no tool {other_tool}": (ToolCall(tool=other_tool, arguments={}), "tool_not_found"),
        f"TypeError: {spec.tool}() got {other_key}": (wrong(spec, **{other_key: "return 1"}), "type_error"),
        f"TypeError: {spec.tool}() misses {spec.key}": (wrong(spec, **{spec.key: None}), "type_error"),
        f"TypeError: {spec.key} must be a string": (wrong(spec, **{spec.key: 3}), "type_error"),
        "LookupError: no function nope": (wrong(spec, **{FUNCTION_KEY: "nope"}), "runtime_error"),
    }
    for message, (call, kind) in cases.items():
        with pytest.raises(CallError) as caught:
            resolve(spec, call)
        assert (str(caught.value), caught.value.kind) == (message, kind)


def test_values_are_shown_in_ascii_and_cut() -> None:
    assert show_value("é") == "'\\xe9'"
    assert len(show_value("x" * 10_000)) == 120


def test_a_task_is_json(train_specs: list[TaskSpec]) -> None:
    task = to_task(train_specs[0])
    assert json.loads(json.dumps(task.payload)) == task.payload
    assert task.task_id == train_specs[0].task_id


def test_names_that_the_policy_wrote_are_shown_in_ascii_and_cut(train_specs: list[TaskSpec]) -> None:
    for name, shown in {"\ud800": "\\ud800", "é": "\\xe9", "a" * 100: "a" * 37 + "..."}.items():
        with pytest.raises(CallError) as caught:
            resolve(train_specs[0], ToolCall(tool=name, arguments={}))
        assert str(caught.value) == f"ToolError: no tool {shown}"
