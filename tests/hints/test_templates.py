"""Hint templates: general without a context, specific with one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from composer_rl.hints.base import HintGenerator
from composer_rl.hints.templates import (
    HINT_TEMPLATES,
    PREFIX,
    HintContext,
    TemplateHintGenerator,
    control_hint,
    dispatch,
    register,
)
from composer_rl.types import ERROR_KINDS

CONTEXT: HintContext = {
    "available_tools": ["write"],
    "tool_name": "write",
    "tool_schema": {"properties": {"function": {}, "text": {}}},
    "names_in_scope": ["xs"],
    "assertion": {"call": "calc([])", "expected": "17"},
}


@pytest.fixture
def registry() -> Iterator[dict[str, object]]:
    """The registry, put back afterwards."""
    saved = dict(HINT_TEMPLATES)
    yield HINT_TEMPLATES  # type: ignore[misc]
    HINT_TEMPLATES.clear()
    HINT_TEMPLATES.update(saved)


def test_the_registry_covers_every_error_kind() -> None:
    assert set(HINT_TEMPLATES) == set(ERROR_KINDS)


@pytest.mark.parametrize("kind", ERROR_KINDS)
def test_every_template_works_without_a_context(kind: str) -> None:
    text = dispatch(kind)
    assert text is not None
    assert text.startswith(PREFIX)
    assert text == dispatch(kind, {})


@pytest.mark.parametrize(
    ("kind", "stated"),
    [
        ("tool_not_found", "the tools here are write(function, text)."),
        ("json_decode", "valid JSON, for write(function, text)."),
        ("type_error", "the arguments of write are (function, text)."),
        ("runtime_error", "the names in scope are xs."),
        ("test_failure", "calc([]) must be 17."),
    ],
)
def test_the_content_of_the_context_is_stated(kind: str, stated: str) -> None:
    text = dispatch(kind, CONTEXT)
    assert text is not None
    assert text.endswith(stated)


def test_several_tools_are_listed_without_arguments() -> None:
    text = dispatch("tool_not_found", {"available_tools": ["Read", "Write"]})
    assert text == PREFIX + "the tools here are Read, Write."


@pytest.mark.parametrize("root", [kind for kind in ERROR_KINDS if kind != "repeated_failure"])
def test_a_repeated_failure_repeats_the_first_reminder(root: str) -> None:
    context: HintContext = {**CONTEXT, "root_kind": root}
    text, first = dispatch("repeated_failure", context), dispatch(root, context)
    assert text is not None
    assert first is not None
    assert text.endswith(first.removeprefix(PREFIX))


def test_a_repeated_failure_of_itself_or_of_an_unknown_kind_is_general() -> None:
    general = dispatch("repeated_failure")
    assert dispatch("repeated_failure", {"root_kind": "repeated_failure"}) == general
    assert dispatch("repeated_failure", {"root_kind": "nope"}) == general


def test_an_unknown_kind_has_no_hint() -> None:
    assert dispatch("nope") is None
    assert TemplateHintGenerator().generate("nope", {}) is None


def test_the_generator_gives_the_text_of_dispatch() -> None:
    generator = TemplateHintGenerator()
    assert isinstance(generator, HintGenerator)
    for kind in ERROR_KINDS:
        assert generator.generate(kind, dict(CONTEXT)) == dispatch(kind, CONTEXT)


def test_register_adds_and_replaces(registry: dict[str, object]) -> None:
    register("my_error", lambda ctx: f"try {ctx.get('intent', 'again')}")
    assert dispatch("my_error", {"intent": "x"}) == "try x"
    register("json_decode", lambda ctx: "mine")
    assert TemplateHintGenerator().generate("json_decode", {}) == "mine"


def test_register_refuses_what_is_no_template(registry: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="non-empty"):
        register("", lambda ctx: "")
    with pytest.raises(ValueError, match="callable"):
        register("kind", "text")  # type: ignore[arg-type]


def test_control_hints_come_from_the_environment() -> None:
    meta = {"oracle": {"available_tools": ["put"]}}
    assert control_hint("tool_not_found", meta, "oracle") == PREFIX + "the tools here are put."
    assert control_hint("tool_not_found", meta, "wrong") is None
    assert control_hint("nope", meta, "oracle") is None
