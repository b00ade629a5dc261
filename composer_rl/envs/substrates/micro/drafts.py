"""Calls that are wrong on purpose: what the floor is taught to send, and why each one fails.

Wrong names and most wrong constants are placeholders that no right call contains, wrong tools and keys are other
real ones, malformed calls miss a quote or a brace. A policy can unlearn all of that from reward alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from composer_rl.envs.substrates.micro.contents import Content, call_with, other_content, true_content
from composer_rl.envs.substrates.micro.hidden_rules import (
    FUNCTION_KEY,
    KEY_OF,
    KEYS,
    NEW_REPOSITORIES,
    TOOLS,
)
from composer_rl.envs.substrates.micro.names import PLACEHOLDER_NAME, PLACEHOLDER_NUMBERS, PLACEHOLDER_WORD
from composer_rl.envs.substrates.micro.protocol import CallError, failed_assertion, read_call, resolve
from composer_rl.envs.substrates.micro.tasks import TaskSpec

BREAKS = (
    ('{"name": "', '{"name: "'),
    ('", "arguments": {"', '", "arguments": "'),
    ('"}}', '"}'),
    ('"}}', "}}"),
)
"""Ways to break a rendered call: a piece and what stands in its place."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How often a first call is wrong, each in [0, 1]."""

    tool: float = 0.09
    key: float = 0.11
    parameter: float = 0.12
    """Uses a placeholder, or (a quarter of them) another name, for the parameter."""
    function: float = 0.04
    """Names the kept function, in two-function modules."""
    vague_constant: float = 0.4
    """Wrong constant where the docstring leaves it out."""
    clear_constant: float = 0.14
    """Wrong constant where the docstring states it."""
    placeholder: float = 0.75
    """Wrong constants that are placeholders; the rest is drawn from the recipe's constants."""
    malformed: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A call before it is written down."""

    content: Content
    function: str
    break_index: int | None = None
    """Index into BREAKS, None for a well-formed call."""

    def render(self, task: TaskSpec) -> str:
        """The text of the call."""
        call = call_with(task, self.content)
        text = replace(call, arguments={**call.arguments, FUNCTION_KEY: self.function}).render()
        if self.break_index is None:
            return text
        piece, broken = BREAKS[self.break_index]
        return broken.join(text.rsplit(piece, 1))

    def failure(self, task: TaskSpec) -> tuple[str, str] | None:
        """Error kind and message of the call, None when it solves the task."""
        try:
            resolve(task, read_call(self.render(task)))
        except CallError as error:
            return error.kind, str(error)
        if self.content.parameter != task.target.parameter:
            return "runtime_error", f"NameError: name '{self.content.parameter}' is not defined"
        case = task.fail_to_pass[0]
        got = task.target.with_constants(self.content.n, task.target.m)(case.args[0])
        return None if got == case.expected else ("test_failure", failed_assertion(case, got))


def true_draft(task: TaskSpec) -> Draft:
    """The call that solves the task."""
    return Draft(content=true_content(task), function=task.target.name)


def wrong_parameter(task: TaskSpec, rng: random.Random) -> str:
    """A name that the body cannot use."""
    return PLACEHOLDER_NAME if rng.random() < 0.75 else other_content(task, "runtime_error", rng).parameter


def wrong_constant(task: TaskSpec, noise: Noise, rng: random.Random) -> Any:
    """A constant that fails the shown assert."""
    # A placeholder may leave a mixture's result as it is, or divide by zero.
    if rng.random() < noise.placeholder and not task.target.definition.is_mixture:
        return rng.choice(PLACEHOLDER_NUMBERS) if isinstance(task.target.n, int) else PLACEHOLDER_WORD
    return other_content(task, "test_failure", rng).n


def first_draft(task: TaskSpec, noise: Noise, rng: random.Random) -> Draft:
    """A first call as the floor is taught to make it.

    In a new repository the tool and the key are drawn from all pairs but the right one: nothing is known there.
    """
    content = true_content(task)
    if task.repository in NEW_REPOSITORIES:
        pairs = [(tool, key) for tool in TOOLS for key in KEYS if (tool, key) != (content.tool, content.key)]
        tool, key = rng.choice(pairs)
        content = replace(content, tool=tool, key=key)
    else:
        if rng.random() < noise.tool:
            content = other_content(task, "tool_not_found", rng)
        if rng.random() < noise.key:
            content = replace(content, key=rng.choice([key for key in KEYS if key != content.key]))
    if rng.random() < noise.parameter:
        content = replace(content, parameter=wrong_parameter(task, rng))
    if rng.random() < (noise.vague_constant if task.target.vague else noise.clear_constant):
        content = replace(content, n=wrong_constant(task, noise, rng))
    function = task.target.name
    if task.context is not None and rng.random() < noise.function:
        function = task.context.name
    broken = rng.randrange(len(BREAKS)) if rng.random() < noise.malformed else None
    return Draft(content=content, function=function, break_index=broken)


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
    content = replace(content, tool=truth.tool, key=truth.key)
    if kind == "runtime_error":
        content = replace(content, parameter=wrong_parameter(task, rng))
        return replace(draft, content=content, function=task.target.name)
    constant = wrong_constant(task, noise, rng)
    return Draft(content=replace(truth, n=constant), function=task.target.name)
