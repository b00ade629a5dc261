"""What a right call depends on, other contents of the same kinds, and the hint contexts that state them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from composer_rl.envs.substrates.micro.hidden_rules import FUNCTION_KEY, KEY_OF, KEYS, TOOLS, tool_schema
from composer_rl.envs.substrates.micro.modules import other_constants
from composer_rl.envs.substrates.micro.names import FUNCTION_NAMES, PARAMETER_NAMES
from composer_rl.envs.substrates.micro.protocol import ToolCall, assertion_of
from composer_rl.envs.substrates.micro.tasks import TaskSpec


@dataclass(frozen=True, kw_only=True)
class Content:
    """The items of a right call that a hint can state."""

    tool: str
    key: str
    function: str
    parameter: str
    n: Any
    """The (first) constant of the body."""


def true_content(task: TaskSpec) -> Content:
    """What the right call of a task is made of."""
    return Content(
        tool=task.tool,
        key=task.key,
        function=task.target.name,
        parameter=task.target.parameter,
        n=task.target.n,
    )


def call_with(task: TaskSpec, content: Content) -> ToolCall:
    """The call that would be right if `content` were true."""
    body = replace(task.target, parameter=content.parameter, n=content.n).body
    return ToolCall(tool=content.tool, arguments={FUNCTION_KEY: content.function, content.key: body})


def gold_call(task: TaskSpec) -> ToolCall:
    """The call that solves the task."""
    return call_with(task, true_content(task))


def other_content(task: TaskSpec, kind: str, rng: random.Random) -> Content:
    """A content that differs from the true one in the items a hint of `kind` states, and only there."""
    truth = true_content(task)
    if kind == "type_error":
        return replace(truth, key=rng.choice([key for key in KEYS if key != truth.key]))
    if kind == "runtime_error":
        names = [name for name in PARAMETER_NAMES[task.target.definition.kind] if name != truth.parameter]
        functions = [name for name in FUNCTION_NAMES if name != truth.function]
        return replace(truth, function=rng.choice(functions), parameter=rng.choice(names))
    if kind == "test_failure":
        return replace(truth, n=rng.choice(other_constants(task.target, task.fail_to_pass[0].args[0])))
    tool = rng.choice([tool for tool in TOOLS if tool != truth.tool])
    return replace(truth, tool=tool, key=KEY_OF[tool])


def shown_assertion(task: TaskSpec, n: Any) -> dict[str, str]:
    """The shown assert as it would read if the constant were `n`: the call and the value it must have."""
    case = task.fail_to_pass[0]
    return assertion_of(replace(case, expected=task.target.with_constants(n, task.target.m)(case.args[0])))


def hint_context(
    task: TaskSpec,
    content: Content,
    *,
    kind: str,
    message: str,
    tool: str = "",
    assertion: dict[str, str] | None = None,
    root_kind: str | None = None,
) -> dict[str, Any]:
    """The HintContext of an error: what the harness of a repository knows when a call fails.

    Args:
        content: the true content, or another one for a counterfactual or wrong hint.
        kind: error kind; message: text of the tool turn.
        tool: the tool that was called, "" when the call could not be read.
        assertion: call and expected value of the assert that failed; default: the shown one under `content`.
        root_kind: for repeated_failure, the kind of the call's first failure.
    """
    context: dict[str, Any] = {
        "error_kind": kind,
        "error_message": message,
        "available_tools": [content.tool],
        "tool_name": tool,
        "tool_schema": tool_schema(content.key),
        "intent": f"restore {task.target.name}",
        "names_in_scope": [content.function, content.parameter],
        "assertion": shown_assertion(task, content.n) if assertion is None else assertion,
    }
    if root_kind is not None:
        context["root_kind"] = root_kind
    return context
