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
    Draft,
    Noise,
    failing_draft,
    first_draft,
    true_draft,
    wrong_parameter,
)
from composer_rl.envs.substrates.micro.hidden_rules import KEYS, NEW_REPOSITORIES, TOOLS
from composer_rl.envs.substrates.micro.protocol import prompt
from composer_rl.envs.substrates.micro.tasks import TaskSpec
from composer_rl.types import Message

HintRenderer = Callable[[str, dict[str, Any]], str | None]
"""An error kind and its context in, the hint's text out."""

BLIND_KINDS = ("tool_not_found", "json_decode", "repeated_failure")
"""Error kinds of the corpus in new repositories; any other kind would show that a call got past the rule."""


@dataclass(frozen=True, kw_only=True)
class Recoveries:
    """What the second and third turns of the corpus look like, shares in [0, 1]."""

    hinted: float = 0.5
    neutral: float = 0.1
    """Content-free hints; the rest goes without any."""
    counterfactual: float = 0.8
    """Hinted recoveries whose content is redrawn at random."""
    redraw: float = 0.75
    """Unhinted recoveries whose failing item is redrawn at random."""
    repeat: float = 0.13
    """Unhinted recoveries that send the failed call again."""
    tool_not_found: float = 0.22
    """Weights of the error kinds."""
    type_error: float = 0.2
    test_failure: float = 0.26
    runtime_error: float = 0.13
    json_decode: float = 0.12
    repeated_failure: float = 0.09

    def clean(self) -> Recoveries:
        """The same without repeats and redraws: unhinted recoveries are right."""
        return replace(self, redraw=0.0, repeat=0.0)

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
    """
    rng = random.Random(f"corpus-{seed}")
    for task in tasks:
        draft = true_draft(task) if clean and task.repository not in NEW_REPOSITORIES else first_draft(task, noise, rng)
        answer = draft.render(task)
        first: list[Message] = [*prompt(task), {"role": "assistant", "content": answer}]
        yield first, _recovery(task, render, neutral, noise, recoveries, rng)


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
    answer = _unhinted(site, recoveries, rng).render(task)
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
        "runtime_error": [content.parameter],
        "test_failure": [str(content.n)],
    }[root]


def _unhinted(site: Site, recoveries: Recoveries, rng: random.Random) -> Draft:
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
    if site.root == "runtime_error":
        return replace(truth, content=replace(content, parameter=wrong_parameter(site.task, rng)))
    return replace(truth, content=other_content(site.task, site.root, rng))
