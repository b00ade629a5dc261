"""The floor's corpus: what recoveries follow, what is trained, and what must never be shown."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from composer_rl.envs.substrates.micro.corpus import BLIND_KINDS, Recoveries, conversations
from composer_rl.envs.substrates.micro.drafts import Noise
from composer_rl.envs.substrates.micro.hidden_rules import NEW_REPOSITORIES, TOOL_OF
from composer_rl.envs.substrates.micro.tasks import Mix, TaskSpec, generate
from composer_rl.types import Message

NEUTRAL = "Reminder: look at the error and try again."
Pair = tuple[list[Message], list[Message]]


def render(kind: str, context: dict[str, Any]) -> str:
    """A renderer that shows everything it is given."""
    return json.dumps([kind, context])


def corpus(count: int, *, clean: bool = False, recoveries: Recoveries | None = None) -> list[tuple[TaskSpec, Pair]]:
    specs = list(islice(generate("train", seed=5, mix=Mix()), count))

    def stream() -> Iterator[TaskSpec]:
        yield from specs

    pairs = conversations(
        stream(),
        render=render,
        neutral=NEUTRAL,
        seed=0,
        noise=Noise(),
        recoveries=recoveries or Recoveries(),
        clean=clean,
    )
    return list(zip(specs, pairs, strict=True))


def hint_of(conversation: list[Message]) -> str | None:
    users = [message["content"] for message in conversation if message["role"] == "user"]
    return users[1] if len(users) > 1 else None


def test_only_the_last_answer_of_a_recovery_is_trained() -> None:
    for _, (first, recovery) in corpus(100):
        assert [message["role"] for message in first] == ["system", "user", "assistant"]
        answers = [message for message in recovery if message["role"] == "assistant"]
        assert [message.get("train", True) for message in answers] == [False] * (len(answers) - 1) + [True]


def test_a_hinted_recovery_follows_the_hint_to_the_letter() -> None:
    counterfactual = 0
    for spec, (_, recovery) in corpus(300):
        hint = hint_of(recovery)
        if hint is None or hint == NEUTRAL:
            continue
        kind, context = json.loads(hint)
        call = json.loads(recovery[-1]["content"])
        root = context.get("root_kind", kind)
        if root in ("tool_not_found", "json_decode"):
            assert call["name"] == context["available_tools"][0]
            assert set(call["arguments"]) == set(context["tool_schema"]["properties"])
            counterfactual += call["name"] != spec.tool
        elif root == "type_error":
            assert set(call["arguments"]) == set(context["tool_schema"]["properties"])
            counterfactual += spec.key not in call["arguments"]
        elif root == "runtime_error":
            function, parameter = context["names_in_scope"]
            assert call["arguments"]["function"] == function
            assert parameter in "".join(call["arguments"].values())
        elif not spec.target.definition.is_mixture:
            assert context["assertion"]["expected"].strip("[]'") in "".join(call["arguments"].values())
    assert counterfactual > 30, "most hinted recoveries must contradict the hidden rule"


def test_no_recovery_tells_the_rule_of_a_new_repository() -> None:
    seen = 0
    for spec, (_, recovery) in corpus(600):
        if spec.repository not in NEW_REPOSITORIES:
            continue
        seen += 1
        tool = TOOL_OF[spec.repository]
        hint = hint_of(recovery)
        assert hint is not None
        kind, context = json.loads(hint)
        assert kind in BLIND_KINDS
        assert context["available_tools"] != [tool]
        assert json.loads(recovery[-1]["content"])["name"] != tool
    assert seen > 50


def test_the_clean_phase_has_right_answers_only() -> None:
    for spec, (first, recovery) in corpus(200, clean=True):
        if spec.repository in NEW_REPOSITORIES:
            continue
        assert spec.target.body in first[-1]["content"]
        assert first[-1]["emphasis"]
        if hint_of(recovery) in (None, NEUTRAL):
            call = json.loads(recovery[-1]["content"])
            assert (call["name"], call["arguments"][spec.key]) == (spec.tool, spec.target.body)


def test_unhinted_recoveries_repeat_and_redraw() -> None:
    recoveries = Recoveries(hinted=0.0, neutral=0.0, repeat=0.5, redraw=1.0)
    repeated = right = 0
    for spec, (_, recovery) in corpus(300, recoveries=recoveries):
        if spec.repository in NEW_REPOSITORIES:
            continue
        answers = [message["content"] for message in recovery if message["role"] == "assistant"]
        repeated += answers[-1] == answers[0]
        right += spec.target.body in answers[-1] and f'"name": "{spec.tool}"' in answers[-1]
    assert repeated > 80
    assert right < 200


def test_a_renderer_must_cover_every_kind() -> None:
    specs = generate("train", seed=5, mix=Mix())
    stream = conversations(
        specs,
        render=lambda kind, context: None,
        neutral=NEUTRAL,
        seed=0,
        noise=Noise(),
        recoveries=Recoveries(hinted=1.0, neutral=0.0),
    )
    with pytest.raises(ValueError, match="covers no"):
        list(islice(stream, 50))


def test_error_kinds_are_as_frequent_as_their_weights() -> None:
    recoveries, rng = Recoveries(), random.Random(0)
    kinds = ("tool_not_found", "type_error", "test_failure", "runtime_error", "json_decode", "repeated_failure")
    weights = [getattr(recoveries, kind) for kind in kinds]
    assert sum(weights) == pytest.approx(1.0)
    drawn = Counter(recoveries.draw_kind(rng, blind=False) for _ in range(4000))
    for kind, weight in zip(kinds, weights, strict=True):
        assert drawn[kind] / 4000 == pytest.approx(weight, abs=0.03)
    blind = Counter(recoveries.draw_kind(rng, blind=True) for _ in range(1000))
    assert set(blind) == set(BLIND_KINDS)
    roots = Counter(recoveries.draw_kind(rng, blind=True, root=True) for _ in range(1000))
    assert set(roots) == set(BLIND_KINDS) - {"repeated_failure"}


def test_hints_are_as_frequent_as_stated() -> None:
    recoveries = Recoveries()
    hints = [hint_of(pair[1]) for spec, pair in corpus(1500) if spec.repository not in NEW_REPOSITORIES]
    shares = Counter("none" if hint is None else "neutral" if hint == NEUTRAL else "hinted" for hint in hints)
    assert shares["hinted"] / len(hints) == pytest.approx(recoveries.hinted, abs=0.06)
    assert shares["neutral"] / len(hints) == pytest.approx(recoveries.neutral, abs=0.04)


def test_most_hints_are_counterfactual() -> None:
    """Where a tool was missing, the hint names another than the right one in the stated share of the recoveries."""
    recoveries = Recoveries(hinted=1.0, neutral=0.0, tool_not_found=1.0, type_error=0.0, test_failure=0.0)
    named = [
        (json.loads(str(hint_of(pair[1])))[1]["available_tools"], spec.tool)
        for spec, pair in corpus(800, recoveries=recoveries)
        if spec.repository not in NEW_REPOSITORIES and json.loads(str(hint_of(pair[1])))[0] == "tool_not_found"
    ]
    assert sum(tools != [right] for tools, right in named) / len(named) == pytest.approx(0.8, abs=0.06)


def test_shares_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"hinted \+ neutral must be at most 1, got 1.2"):
        Recoveries(hinted=0.9, neutral=0.3)
