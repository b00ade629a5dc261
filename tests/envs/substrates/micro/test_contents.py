"""Contents: the right one, others of the same kind, and the contexts that hints are made from."""

from __future__ import annotations

import random

import pytest

from composer_rl.envs.substrates.micro.contents import (
    call_with,
    gold_call,
    hint_context,
    other_content,
    shown_assertion,
    true_content,
)
from composer_rl.envs.substrates.micro.tasks import TaskSpec
from composer_rl.types import ERROR_KINDS

ITEMS = {
    "tool_not_found": {"tool"},
    "json_decode": {"tool"},
    "type_error": {"key"},
    "runtime_error": {"parameter", "function"},
    "test_failure": {"n"},
}


@pytest.mark.parametrize("kind", ITEMS)
def test_another_content_differs_where_the_kind_says(kind: str, train_specs: list[TaskSpec]) -> None:
    rng = random.Random(0)
    for spec in train_specs[:80]:
        truth, other = true_content(spec), other_content(spec, kind, rng)
        changed = {name for name, value in vars(truth).items() if getattr(other, name) != value}
        assert ITEMS[kind] <= changed <= ITEMS[kind] | {"key"}
        assert call_with(spec, other).render() != gold_call(spec).render()


def test_a_wrong_constant_changes_the_shown_assert(train_specs: list[TaskSpec]) -> None:
    rng = random.Random(0)
    for spec in train_specs[:80]:
        other = other_content(spec, "test_failure", rng)
        assert shown_assertion(spec, other.n) != shown_assertion(spec, spec.target.n)


def test_the_context_states_the_content(train_specs: list[TaskSpec]) -> None:
    spec = train_specs[0]
    content = other_content(spec, "tool_not_found", random.Random(0))
    context = hint_context(spec, content, kind="tool_not_found", message="m", tool="put")
    assert context["available_tools"] == [content.tool]
    assert list(context["tool_schema"]["properties"]) == ["function", content.key]
    assert context["names_in_scope"] == [spec.target.name, spec.target.parameter]
    assert "root_kind" not in context
    assert context["error_kind"] in ERROR_KINDS
