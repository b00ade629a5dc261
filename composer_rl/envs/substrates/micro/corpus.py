"""Conversations that the floor is trained on: noisy first calls, and recoveries with and without hints.

What the noise is for: a floor that solves everything leaves reinforcement learning nothing to gain, so first calls
are wrong on purpose, each way often enough to be seen. What the recoveries are for: with a hint, the right call is
what the hint says, and in most of them the hint's content is redrawn at random (counterfactual), so that only the
hint tells it; without one, the item that failed is redrawn, so that an error alone tells little.

A conversation is a list of messages. Two optional keys steer training: `train` (bool, assistant messages, default
True) and `emphasis` (list of str: tokens equal to one of them carry the content weight).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from composer_rl.envs.substrates.micro.contents import Content, call_with, hint_context, other_content, true_content
from composer_rl.envs.substrates.micro.drafts import (
    BREAKS,
    QUIET,
    Draft,
    Noise,
    failing_draft,
    first_draft,
    true_draft,
    wrong_constant,
    wrong_parameter,
)
from composer_rl.envs.substrates.micro.hidden_rules import KEYS, NEW_REPOSITORIES, TOOLS
from composer_rl.envs.substrates.micro.protocol import prompt
from composer_rl.envs.substrates.micro.tasks import TaskSpec, check_shares
from composer_rl.types import Message

HintRenderer = Callable[[str, dict[str, Any]], str | None]
"""An error kind and its context in, the hint's text out."""

BLIND_KINDS = ("tool_not_found", "json_decode", "repeated_failure")
"""Error kinds of the corpus in new repositories; any other kind would show that a call got past the rule."""


@dataclass(frozen=True, kw_only=True)
class Recoveries:
    """What the second and third turns of the corpus look like, shares in [0, 1]."""

    hinted: float = 0.5
    neutral: float = 0.14
    """Content-free hints; the rest goes without any."""
    counterfactual: float = 0.8
    """Hinted recoveries whose content is redrawn at random."""
    redraw: float = 0.88
    """Unhinted recoveries whose failing item is redrawn at random."""
    repeat: float = 0.13
    """Unhinted recoveries that send the failed call again."""
    tool_not_found: float = 0.17
    """Weights of the error kinds."""
    type_error: float = 0.17
    test_failure: float = 0.32
    runtime_error: float = 0.15
    json_decode: float = 0.11
    repeated_failure: float = 0.08

    def __post_init__(self) -> None:
        check_shares(self)
        if self.hinted + self.neutral > 1:
            raise ValueError(f"hinted + neutral must be at most 1, got {self.hinted + self.neutral}")

    def draw_kind(self, rng: random.Random, *, blind: bool, root: bool = False) -> str:
        """An error kind; `root` leaves repeated_failure out, `blind` keeps to BLIND_KINDS."""
        kinds = ["tool_not_found", "type_error", "test_failure", "runtime_error", "json_decode", "repeated_failure"]
        allowed = [
            kind for kind in kinds if (kind in BLIND_KINDS or not blind) and not (root and kind == "repeated_failure")
        ]
        return rng.choices(allowed, [getattr(self, kind) for kind in allowed])[0]


@dataclass(frozen=True, kw_only=True)
class Site:
    """A failed call and what is known about it."""

    task: TaskSpec
    draft: Draft
    kind: str
    """Error kind of the last turn."""
    root: str
    """Error kind of the call itself: the same, except for a repeated failure."""
    message: str
    """Text of the last tool turn."""

    @property
    def blind(self) -> bool:
        """Whether the repository is one whose rule the floor must not learn."""
        return self.task.repository in NEW_REPOSITORIES


def conversations(
    tasks: Iterator[TaskSpec],
    *,
    render: HintRenderer,
    neutral: str,
    seed: int,
    noise: Noise,
    recoveries: Recoveries,
    clean: bool = False,
) -> Iterator[tuple[list[Message], list[Message]]]:
    """For each task a single-turn conversation and one with a recovery.

    Args:
        render: makes the hints; it must cover every error kind.
        neutral: text of a content-free hint.
        clean: first calls are right (new repositories aside) and so are unhinted recoveries, and what they copy
            from the prompt carries the content weight; the calls that a recovery follows stay noisy.
    """
    rng = random.Random(f"corpus-{seed}")
    first_noise = QUIET if clean else noise
    if clean:
        recoveries = replace(recoveries, redraw=0.0, repeat=0.0)
    for task in tasks:
        answer: Message = {"role": "assistant", "content": first_draft(task, first_noise, rng).render(task)}
        conversation = _recovery(task, render, neutral, noise, recoveries, rng)
        if clean:
            answer["emphasis"] = copied_items(task)
            conversation[-1].setdefault("emphasis", copied_items(task))
        yield [*prompt(task), answer], conversation


def copied_items(task: TaskSpec) -> list[str]:
    """What the right call copies from the prompt: constants, the parameter and the function's name."""
    target = task.target
    return [str(item) for item in (target.n, target.m, target.parameter, target.name) if item is not None]


def _recovery(
    task: TaskSpec, render: HintRenderer, neutral: str, noise: Noise, recoveries: Recoveries, rng: random.Random
) -> list[Message]:
    """One failed call (two equal ones for repeated_failure) and its recovery; only the recovery is trained."""
    blind = task.repository in NEW_REPOSITORIES
    kind = recoveries.draw_kind(rng, blind=blind)
    root = recoveries.draw_kind(rng, blind=blind, root=True) if kind == "repeated_failure" else kind
    draft = failing_draft(task, root, noise, rng)
    failure = draft.failure(task)
    assert failure is not None, (root, draft)
    assert failure[0] == root, (root, failure)
    message = failure[1]
    text = draft.render(task)
    messages = prompt(task)
    messages += [{"role": "assistant", "content": text, "train": False}, {"role": "tool", "content": message}]
    if kind == "repeated_failure":
        message = f"RepeatedFailure: {message}"
        messages += [{"role": "assistant", "content": text, "train": False}, {"role": "tool", "content": message}]
    site = Site(task=task, draft=draft, kind=kind, root=root, message=message)
    chance = rng.random()
    if chance < recoveries.hinted or blind:
        return messages + _hinted(site, render, recoveries, rng)
    if chance < recoveries.hinted + recoveries.neutral:
        messages.append({"role": "user", "content": neutral})
    answer = _unhinted(site, noise, recoveries, rng).render(task)
    return [*messages, {"role": "assistant", "content": answer}]


def _hinted(site: Site, render: HintRenderer, recoveries: Recoveries, rng: random.Random) -> list[Message]:
    """The hint and the call that follows it to the letter."""
    task, root = site.task, site.root
    content = true_content(task)
    # The shown assert of a mixture does not tell its constants, so there is nothing to redraw.
    tells = root != "test_failure" or not task.target.definition.is_mixture
    if tells and (site.blind or rng.random() < recoveries.counterfactual):
        content = other_content(task, root, rng)
        if root in ("tool_not_found", "json_decode"):
            content = replace(content, key=rng.choice(KEYS))
    context = hint_context(
        task,
        content,
        kind=site.kind,
        message=site.message,
        tool="" if root == "json_decode" else site.draft.content.tool,
        root_kind=root if site.kind == "repeated_failure" else None,
    )
    hint = render(site.kind, context)
    if hint is None:
        raise ValueError(f"the hint renderer covers no {site.kind}; the corpus needs hints for every error kind")
    answer = call_with(task, content).render()
    return [
        {"role": "user", "content": hint},
        {"role": "assistant", "content": answer, "emphasis": stated_items(content, root) if tells else []},
    ]


def stated_items(content: Content, root: str) -> list[str]:
    """The items that a hint for `root` states, as they stand in the call."""
    return {
        "tool_not_found": [content.tool, content.key],
        "json_decode": [content.tool, content.key],
        "type_error": [content.key],
        "runtime_error": [content.function, content.parameter],
        "test_failure": [str(content.n)],
    }[root]


def _unhinted(site: Site, noise: Noise, recoveries: Recoveries, rng: random.Random) -> Draft:
    """The failed call again, or the right call with the failing item redrawn, or the right call."""
    if rng.random() < recoveries.repeat:
        return site.draft
    truth = true_draft(site.task)
    if rng.random() >= recoveries.redraw:
        return truth
    content = true_content(site.task)
    if site.root == "json_decode":
        if rng.random() < 0.4:
            return replace(truth, break_index=rng.randrange(len(BREAKS)))
        return replace(truth, content=replace(content, tool=rng.choice(TOOLS), key=rng.choice(KEYS)))
    tried = site.draft.content
    if site.root == "runtime_error":
        return replace(
            truth, content=replace(content, parameter=wrong_parameter(site.task, rng, tried=tried.parameter))
        )
    if site.root == "test_failure":
        return replace(truth, content=replace(content, n=wrong_constant(site.task, noise, rng, tried=tried.n)))
    return replace(truth, content=other_content(site.task, site.root, rng))
