from __future__ import annotations

import json

import pytest

from composer_rl.report.rollouts import choose, highlight, outcome_of, view


def turn(reward=0.0, kind=None, text="{}", **fields):
    return {"text": text, "reward": reward, "error_kind": kind, "error_message": kind, "observation": None} | fields


def record(step=1, task="t", turns=None, **fields):
    return {"step": step, "split": "train", "task_id": task, "reward": 0.0, "turns": turns or [turn()]} | fields


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [([1.0], "solved"), ([0.0, 1.0], "recovered"), ([0.9, 0.5], "failed"), ([], "failed"), ([None], "failed")],
)
def test_outcome(rewards, expected):
    assert outcome_of({"turns": [turn(reward) for reward in rewards]}) == expected


def test_sides_are_early_and_late_and_in_order():
    records = [record(step=step, task=f"t{step}") for step in range(1, 31)]
    early, late = choose(records, per_side=4)
    assert [item["step"] for item in early] == [1, 2, 3, 4]
    assert [item["step"] for item in late] == [27, 28, 29, 30]


def test_rare_outcomes_and_kinds_are_chosen():
    common = [record(step=1, task=f"a{n}", turns=[turn(0.0, "test_failure")]) for n in range(50)]
    rare = [
        record(step=1, task="solved", turns=[turn(1.0)]),
        record(step=1, task="json", turns=[turn(0.0, "json_decode")]),
        record(step=1, task="back", turns=[turn(0.0, "type_error"), turn(1.0)]),
    ]
    early, late = choose([*common, *rare, record(step=9)], per_side=4)
    assert {"solved", "json", "back"} <= {item["task_id"] for item in early}
    assert len(late) == 1


def test_tasks_of_both_sides_come_first():
    records = [record(step=step, task=f"s{step}-{n}") for step in (1, 9) for n in range(5)]
    records += [record(step=1, task="both"), record(step=9, task="both")]
    early, late = choose(records, per_side=2)
    assert "both" in {item["task_id"] for item in early}
    assert "both" in {item["task_id"] for item in late}


@pytest.mark.parametrize(("records", "per_side"), [([], 5), ([record()], 0)])
def test_nothing_to_choose(records, per_side):
    assert choose(records, per_side=per_side) == ([], [])


def test_one_step_is_shown_once():
    early, late = choose([record(step=3), record(step=3)], per_side=5)
    assert (len(early), late) == (2, [])


def test_a_tool_call_is_taken_apart():
    text = json.dumps({"name": "swap_in", "arguments": {"code": "return 1 < 2", "n": 3}})
    shown = view(record(turns=[turn(text=text, kind="type_error", observation="type_error")])).turns[0]
    assert shown.tool == "swap_in"
    assert [argument.name for argument in shown.arguments] == ["code", "n"]
    assert '<span class="k">return</span>' in shown.arguments[0].value
    assert "&lt;" in shown.arguments[0].value
    assert shown.observation is None  # It repeats the error message.


@pytest.mark.parametrize("text", ["", "hello", "{", "[]", '"name"', '{"name": 3}', "[" * 100_000, "9" * 5000])
def test_what_is_no_tool_call_is_shown_as_it_is(text):
    shown = view(record(turns=[turn(text=text)])).turns[0]
    assert shown.tool is None
    assert shown.arguments == ()


def test_arguments_that_are_no_object():
    shown = view(record(turns=[turn(text='{"name": "put", "arguments": [1]}')])).turns[0]
    assert [argument.name for argument in shown.arguments] == ["arguments"]
    assert view(record(turns=[turn(text='{"name": "put"}')])).turns[0].arguments == ()


@pytest.mark.parametrize("language", ["json", "python"])
def test_highlighting_escapes_and_keeps_the_text(language):
    import html
    import re

    text = "\n</script><script>alert(\"1\")</script>\n'&amp;'\n"
    shown = highlight(text, language)
    assert "<script" not in shown
    assert html.unescape(re.sub(r"</?span[^>]*>", "", shown)) == text


def test_records_of_another_shape():
    shown = view(
        {"step": 1, "turns": [{"text": None}, {}], "prompt": [{"role": "user", "content": [{"text": "x"}]}, "odd"]}
    )
    assert shown.prompt == (("user", '[{"text": "x"}]'),)
    assert [turn.error_kind for turn in shown.turns] == [None, None]
    assert (shown.split, shown.task_id, shown.reward, shown.stop_reason) == ("", "", None, "")


def test_long_texts_are_cut():
    shown = view(record(turns=[turn(text="x", error_message="y" * 20_000)])).turns[0]
    assert shown.error_message.endswith("… 8,000 more characters")
