"""Hints from templates: one short sentence per error kind, from what the harness knows at the error.

The keys of HintContext beyond the reference's six (names_in_scope, assertion, root_kind) are optional like the rest:
every template also works on an empty context, with a general reminder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict, cast


class HintContext(TypedDict, total=False):
    """What is known about a failed call; every key is optional."""

    error_kind: str
    error_message: str
    available_tools: list[str]
    """Tools that exist where the call was made."""
    tool_name: str
    """The tool that was called."""
    tool_schema: dict[str, Any]
    """JSON schema of the arguments of the tool that should be called."""
    intent: str
    names_in_scope: list[str]
    """Names that the failing code may use."""
    assertion: dict[str, str]
    """The assert that failed: `call` (source text) and `expected` (its value as text)."""
    root_kind: str
    """For repeated_failure: the error kind of the call's first failure."""


HintTemplate = Callable[[HintContext], str]
"""A template: a context in, the hint's text out."""

PREFIX = "Reminder: "
"""How every template's hint begins."""


def _arguments(ctx: HintContext) -> str:
    names = ctx.get("tool_schema", {}).get("properties", {})
    return f"({', '.join(names)})" if names else ""


def hint_tool_not_found(ctx: HintContext) -> str:
    """Names the tools that exist, with the arguments where they are known."""
    tools = ctx.get("available_tools", [])
    if not tools:
        return PREFIX + "call only a tool that exists here."
    arguments = _arguments(ctx) if len(tools) == 1 else ""
    return f"{PREFIX}the tools here are {', '.join(tools)}{arguments}."


def hint_json_decode(ctx: HintContext) -> str:
    """Says that arguments must be valid JSON, and the call they belong to where it is known."""
    tools = ctx.get("available_tools", [])
    if len(tools) != 1:
        return PREFIX + "tool arguments must be valid JSON."
    return f"{PREFIX}tool arguments must be valid JSON, for {tools[0]}{_arguments(ctx)}."


def hint_type_error(ctx: HintContext) -> str:
    """Gives the argument names that the called tool takes."""
    arguments = _arguments(ctx)
    if not arguments:
        return PREFIX + "pass exactly the arguments of the tool."
    return f"{PREFIX}the arguments of {ctx.get('tool_name') or 'the tool'} are {arguments}."


def hint_runtime_error(ctx: HintContext) -> str:
    """Gives the names that the failing code may use."""
    names = ctx.get("names_in_scope", [])
    if not names:
        return PREFIX + "the code raised an error; read it and change the code."
    return f"{PREFIX}the names in scope are {', '.join(names)}."


def hint_test_failure(ctx: HintContext) -> str:
    """Gives the value that the failed assert asks for."""
    assertion = ctx.get("assertion", {})
    if "call" not in assertion or "expected" not in assertion:
        return PREFIX + "a test failed; compare its value with the expected one."
    return f"{PREFIX}{assertion['call']} must be {assertion['expected']}."


def hint_repeated_failure(ctx: HintContext) -> str:
    """Says that the same call failed before, and repeats the reminder of that failure where it is known."""
    root = HINT_TEMPLATES.get(ctx.get("root_kind", "repeated_failure"))
    start = PREFIX + "that call failed before; "
    if root is None or root is hint_repeated_failure:
        return start + "change it."
    return start + root(ctx).removeprefix(PREFIX)


HINT_TEMPLATES: dict[str, HintTemplate] = {
    "tool_not_found": hint_tool_not_found,
    "json_decode": hint_json_decode,
    "type_error": hint_type_error,
    "runtime_error": hint_runtime_error,
    "repeated_failure": hint_repeated_failure,
    "test_failure": hint_test_failure,
}
"""Templates by error kind; extend it with `register`."""


def dispatch(error_kind: str, ctx: HintContext | None = None) -> str | None:
    """Hint text of the template for `error_kind`, or None when no template covers it."""
    template = HINT_TEMPLATES.get(error_kind)
    return None if template is None else template({} if ctx is None else ctx)


def control_hint(error_kind: str, error_meta: dict[str, Any], content: str) -> str | None:
    """Hint of the template over the context that the environment put under `content` ("oracle" or "wrong").

    None when the environment gives no such context, or no template covers the kind.
    """
    context = error_meta.get(content)
    return None if context is None else dispatch(error_kind, cast(HintContext, context))


def register(error_kind: str, fn: HintTemplate) -> None:
    """Add a template, or replace the one of that kind. Raises ValueError for an empty kind or no callable."""
    if not error_kind:
        raise ValueError("error_kind must be a non-empty name")
    if not callable(fn):
        raise ValueError(f"the template of {error_kind!r} must be callable, got {type(fn).__name__}")
    HINT_TEMPLATES[error_kind] = fn


@dataclass(kw_only=True)
class TemplateHintGenerator:
    """The template registry as a HintGenerator: free, deterministic, same text as `dispatch`."""

    in_rollout: bool = False
    """Show the hint to the policy in its own rollouts too (an ablation), not only to the teacher."""

    def generate(self, error_kind: str, error_meta: dict[str, Any]) -> str | None:
        """Hint text from the template of `error_kind`, None when there is none."""
        return dispatch(error_kind, cast(HintContext, error_meta))
