"""Calls that are wrong on purpose: what the floor is taught to send, and why each one fails.

Wrong names and most wrong constants are placeholders that no right call contains, wrong tools and keys are other
real ones, malformed calls miss a quote or a brace. A policy can unlearn all of that from reward alone.
"""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass, replace
from typing import Any

from composer_rl.envs.substrates.micro.contents import Content, call_with, other_content, true_content
from composer_rl.envs.substrates.micro.hidden_rules import (
    CANDIDATES_OF,
    KEY_OF,
    KEYS,
    NEW_REPOSITORIES,
    TOOLS,
)
from composer_rl.envs.substrates.micro.modules import body_split
from composer_rl.envs.substrates.micro.names import (
    FUNCTION_NAMES,
    PLACEHOLDER_NAMES,
    PLACEHOLDER_NUMBERS,
    PLACEHOLDER_WORDS,
)
from composer_rl.envs.substrates.micro.protocol import CallError, failed_assertion, read_call, resolve
from composer_rl.envs.substrates.micro.tasks import TaskSpec, check_shares, neighbours

BREAKS = (
    ('{"name": "', '{"name: "'),
    ('", "arguments": {"', '", "arguments": "'),
    ('"}}', '"}'),
    ('"}}', "}}"),
)
"""Ways to break a rendered call: a piece and what stands in its place."""

SYNTAX_MESSAGE = "SyntaxError: invalid syntax"
"""Message of every syntax error; Python's own wording changes with its version."""

WRONG_FUNCTIONS = 0.15
"""Share of raising drafts that name another function."""
GARBLED_BODIES = 0.25
"""Share of raising drafts whose body is no Python; the rest uses a wrong name."""
OTHER_OPERATIONS = 0.2
"""Share of one-operation drafts failing a test that do something else than the docstring says."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How often a first call is wrong, each in [0, 1]."""

    tool: float = 0.09
    key: float = 0.13
    parameter: float = 0.12
    """Uses a placeholder, or (a quarter of them) another name, for the parameter."""
    function: float = 0.04
    """Names the kept function, in two-function modules."""
    vague_constant: float = 0.4
    """Wrong constant where the docstring leaves it out."""
    clear_constant: float = 0.2
    """Wrong constant where the docstring states it."""
    placeholder: float = 1.0
    """Wrong constants that are placeholders; the rest is drawn from the recipe's constants."""
    malformed: float = 0.1

    def __post_init__(self) -> None:
        check_shares(self)


QUIET = Noise(tool=0.0, key=0.0, parameter=0.0, function=0.0, vague_constant=0.0, clear_constant=0.0, malformed=0.0)
"""Right first calls, except in new repositories."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A call before it is written down."""

    content: Content
    body: str | None = None
    """A body in place of the one that `content` gives."""
    break_index: int | None = None
    """Index into BREAKS, None for a well-formed call."""

    def render(self, task: TaskSpec) -> str:
        """The text of the call."""
        call = call_with(task, self.content)
        if self.body is not None:
            call = replace(call, arguments={**call.arguments, self.content.key: self.body})
        text = call.render()
        if self.break_index is None:
            return text
        piece, broken = BREAKS[self.break_index]
        return broken.join(text.rsplit(piece, 1))

    def failure(self, task: TaskSpec) -> tuple[str, str] | None:
        """Error kind and message of the call, None when the shown assert passes."""
        try:
            body = resolve(task, read_call(self.render(task)))
        except CallError as error:
            return error.kind, str(error)
        case = task.fail_to_pass[0]
        if self.body is None and self.content.parameter == task.target.parameter:
            got = task.target.with_constants(self.content.n, task.target.m)(case.args[0])
        elif self.body is None:
            return "runtime_error", f"NameError: name '{self.content.parameter}' is not defined"
        else:
            scope: dict[str, Any] = {}
            try:
                exec(compile(task.target.source(body), "<draft>", "exec"), scope)
            except SyntaxError:
                return "runtime_error", SYNTAX_MESSAGE
            got = scope[task.target.name](*case.args)
        return None if got == case.expected else ("test_failure", failed_assertion(case, got))


def true_draft(task: TaskSpec) -> Draft:
    """The call that solves the task."""
    return Draft(content=true_content(task))


def wrong_parameter(task: TaskSpec, rng: random.Random, *, tried: str = "") -> str:
    """A name that the body cannot use: most often a placeholder, and not the one just tried."""
    if rng.random() < 0.75:
        return rng.choice([name for name in PLACEHOLDER_NAMES if name != tried])
    return other_content(task, "runtime_error", rng).parameter


def wrong_constant(task: TaskSpec, noise: Noise, rng: random.Random, *, tried: Any = None) -> Any:
    """A constant that fails the shown assert: most often a placeholder, and not the one just tried."""
    # A placeholder may leave a mixture's result as it is, or divide by zero.
    if rng.random() < noise.placeholder and not task.target.definition.is_mixture:
        options = PLACEHOLDER_NUMBERS if isinstance(task.target.n, int) else PLACEHOLDER_WORDS
        return rng.choice([option for option in options if option != tried])
    return other_content(task, "test_failure", rng).n


def first_draft(task: TaskSpec, noise: Noise, rng: random.Random) -> Draft:
    """A first call as the floor is taught to make it.

    In a new repository the tool is a guess among CANDIDATES_OF it, under the key that tool takes elsewhere.
    """
    content = true_content(task)
    if task.repository in NEW_REPOSITORIES:
        tool = rng.choice(CANDIDATES_OF[task.repository])
        content = replace(content, tool=tool, key=KEY_OF[tool])
    else:
        if rng.random() < noise.tool:
            content = other_content(task, "tool_not_found", rng)
        if rng.random() < noise.key:
            content = replace(content, key=rng.choice([key for key in KEYS if key != content.key]))
    if rng.random() < noise.parameter:
        content = replace(content, parameter=wrong_parameter(task, rng))
    chance = noise.vague_constant if task.target.vague else noise.clear_constant
    if not task.target.definition.is_mixture and rng.random() < chance:
        content = replace(content, n=wrong_constant(task, noise, rng))
    if task.context is not None and rng.random() < noise.function:
        content = replace(content, function=task.context.name)
    broken = rng.randrange(len(BREAKS)) if rng.random() < noise.malformed else None
    return Draft(content=content, break_index=broken)


def failing_draft(task: TaskSpec, kind: str, noise: Noise, rng: random.Random) -> Draft:
    """A first call that fails with `kind`; the items that are not checked before that are as noisy as in any."""
    truth = true_content(task)
    draft = replace(first_draft(task, noise, rng), break_index=None)
    content = draft.content
    if kind == "json_decode":
        return replace(draft, break_index=rng.randrange(len(BREAKS)))
    if kind == "tool_not_found":
        tool = content.tool
        if tool == truth.tool:
            tool = rng.choice([name for name in TOOLS if name != truth.tool])
            content = replace(content, key=KEY_OF[tool])
        return replace(draft, content=replace(content, tool=tool))
    if kind == "type_error":
        key = rng.choice([key for key in KEYS if key != truth.key])
        return replace(draft, content=replace(content, tool=truth.tool, key=key))
    content = replace(content, tool=truth.tool, key=truth.key, function=truth.function)
    if kind == "runtime_error":
        return _raising_draft(task, content, rng)
    return _failing_body(task, truth, noise, rng)


def _raising_draft(task: TaskSpec, content: Content, rng: random.Random) -> Draft:
    """A wrong name, a wrong function or a garbled body."""
    chance = rng.random()
    if chance < WRONG_FUNCTIONS:
        others = [name for name in FUNCTION_NAMES if name != content.function]
        function = rng.choice(others) if task.context is None else task.context.name
        return Draft(content=replace(content, function=function))
    if chance < WRONG_FUNCTIONS + GARBLED_BODIES:
        return Draft(content=content, body=garbled(task, rng))
    return Draft(content=replace(content, parameter=wrong_parameter(task, rng)))


def garbled(task: TaskSpec, rng: random.Random) -> str:
    """The right body with a piece cut out or doubled so that it is no Python."""
    body = task.target.body
    while True:
        start = rng.randrange(len(body))
        end = min(len(body), start + rng.randrange(1, 8))
        text = body[:start] + body[start:end] * rng.choice((0, 2)) + body[end:]
        try:
            with warnings.catch_warnings(action="ignore", category=SyntaxWarning):  # "2if" is odd, but Python
                compile(task.target.source(text), "<draft>", "exec")
        except SyntaxError:
            return text


def _failing_body(task: TaskSpec, truth: Content, noise: Noise, rng: random.Random) -> Draft:
    """A wrong constant, or another operation than the docstring asks for."""
    target = task.target
    if rng.random() >= (0.7 if target.definition.is_mixture else OTHER_OPERATIONS):
        return Draft(content=replace(truth, n=wrong_constant(task, noise, rng)))
    for _ in range(50):
        recipe = rng.choice(neighbours(target.definition))
        n, m = target.n, target.m
        if target.definition.is_mixture:
            constants = target.definition.constants
            n, m = (value if rng.random() < 0.5 else rng.choice(constants) for value in (n, m))
        if body_split(recipe, n, m) != "train":
            continue  # No held-out body shows up in the corpus, not even as somebody's mistake.
        draft = Draft(content=truth, body=replace(target, recipe=recipe, n=n, m=m).body)
        failure = draft.failure(task)
        if failure is not None and failure[0] == "test_failure":
            return draft
    return Draft(content=replace(truth, n=wrong_constant(task, noise, rng)))
