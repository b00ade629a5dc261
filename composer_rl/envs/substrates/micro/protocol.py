"""The tool protocol: how a task is shown, how an answer is read, and what each error says and knows.

An answer is one JSON object, `{"name": <tool>, "arguments": {"function": <name>, <key>: <body>}}`. Whatever is wrong
with it comes back as a tool turn whose error is one of composer_rl.types.ERROR_KINDS.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from composer_rl.envs.substrates.micro.hidden_rules import FUNCTION_KEY, TOOLS
from composer_rl.envs.substrates.micro.modules import DELETED_BODY
from composer_rl.envs.substrates.micro.tasks import TaskSpec, TestCase
from composer_rl.types import Message, Task

SYSTEM_PROMPT = "Tools: " + " ".join(TOOLS)
"""The same for every repository: it does not say which tool exists there."""

MAX_VALUE_CHARS = 120
"""Characters of a value shown in an error."""

MAX_NAME_CHARS = 40
"""Characters of a name shown in an error."""


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A well-formed call."""

    tool: str
    arguments: dict[str, Any]

    def render(self) -> str:
        """The call as the assistant writes it."""
        return json.dumps({"name": self.tool, "arguments": self.arguments}, ensure_ascii=False)


class CallError(Exception):
    """A call that fails before any code runs; `kind` is its error kind and the text is the tool turn's."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def show_value(value: Any) -> str:
    """Python text of a value, ASCII only, cut to MAX_VALUE_CHARS."""
    text = ascii(value)
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 3] + "..."


def show_name(text: str) -> str:
    """A name that the policy wrote, ASCII only, cut to MAX_NAME_CHARS."""
    name = text.encode("ascii", "backslashreplace").decode("ascii")
    return name if len(name) <= MAX_NAME_CHARS else name[: MAX_NAME_CHARS - 3] + "..."


def show_call(function: str, args: tuple[Any, ...] | list[Any]) -> str:
    """`function(args)` as in an assert."""
    return f"{function}({', '.join(show_value(arg) for arg in args)})"


def failed_assertion(case: TestCase, got: Any) -> str:
    """Message of an assert whose call gave `got`."""
    call = show_call(case.function, case.args)
    return f"AssertionError: {call} == {show_value(case.expected)}, got {show_value(got)}"


def assertion_of(case: TestCase) -> dict[str, str]:
    """An assert as the hints take it: source text of the call, and the value it must have as text."""
    return {"call": show_call(case.function, case.args), "expected": show_value(case.expected)}


def prompt(task: TaskSpec) -> list[Message]:
    """System and user message of a task: the module without the deleted body, and one failing assert."""
    shown = task.fail_to_pass[0]
    context = "" if task.context is None else task.context.source()
    module = context + task.target.source(DELETED_BODY)
    failed = f"FAILED assert {show_call(shown.function, shown.args)} == {show_value(shown.expected)}"
    return [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": f"repo {task.repository}\n{module}{failed}"},
    ]


def to_task(task: TaskSpec) -> Task:
    """The record that the rest of the package sees."""
    return Task(task_id=task.task_id, prompt=prompt(task), payload=task.payload())


def read_call(text: str) -> ToolCall:
    """Parse an answer. Raises CallError of kind json_decode when it is no call object."""
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        raise CallError("json_decode", f"JSONDecodeError: {error.msg}") from error
    except RecursionError as error:
        raise CallError("json_decode", "JSONDecodeError: nested too deeply") from error
    if (
        not isinstance(record, dict)
        or not isinstance(record.get("name"), str)
        or not isinstance(record.get("arguments"), dict)
    ):
        raise CallError("json_decode", "JSONDecodeError: not a call with name and arguments")
    return ToolCall(tool=record["name"], arguments=record["arguments"])


def resolve(task: TaskSpec, call: ToolCall) -> str:
    """The function body that a call asks for.

    Raises CallError: tool_not_found for any tool but the repository's, type_error for wrong argument keys or types,
    runtime_error for a function that is not the deleted one.
    """
    if call.tool != task.tool:
        raise CallError("tool_not_found", f"ToolError: no tool {show_name(call.tool)}")
    for key in call.arguments:
        if key not in (FUNCTION_KEY, task.key):
            raise CallError("type_error", f"TypeError: {call.tool}() got {show_name(key)}")
    for key in (FUNCTION_KEY, task.key):
        if key not in call.arguments:
            raise CallError("type_error", f"TypeError: {call.tool}() misses {key}")
        if not isinstance(call.arguments[key], str):
            raise CallError("type_error", f"TypeError: {key} must be a string")
    if call.arguments[FUNCTION_KEY] != task.target.name:
        raise CallError("runtime_error", f"LookupError: no function {show_name(call.arguments[FUNCTION_KEY])}")
    body: str = call.arguments[task.key]
    return body
