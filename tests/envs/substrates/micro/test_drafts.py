"""Calls that are wrong on purpose fail the way they are meant to."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from composer_rl.envs.substrates.micro.drafts import (
    BREAKS,
    QUIET,
    Noise,
    failing_draft,
    first_draft,
    true_draft,
)
from composer_rl.envs.substrates.micro.hidden_rules import CANDIDATES_OF, NEW_REPOSITORIES, TOOL_OF
from composer_rl.envs.substrates.micro.tasks import TaskSpec

KINDS = ("tool_not_found", "json_decode", "type_error", "runtime_error", "test_failure")


@pytest.mark.parametrize("kind", KINDS)
def test_a_failing_draft_fails_with_its_kind(kind: str, train_specs: list[TaskSpec]) -> None:
    rng = random.Random(0)
    known = [spec for spec in train_specs if spec.repository not in NEW_REPOSITORIES]
    for spec in known[:150]:
        failure = failing_draft(spec, kind, Noise(), rng).failure(spec)
        assert failure is not None
        assert failure[0] == kind


def test_every_break_is_no_json(train_specs: list[TaskSpec]) -> None:
    for spec in train_specs[:30]:
        for index in range(len(BREAKS)):
            failure = replace(true_draft(spec), break_index=index).failure(spec)
            assert failure is not None
            assert failure[0] == "json_decode"


def test_without_noise_first_calls_are_right_except_in_new_repositories(train_specs: list[TaskSpec]) -> None:
    rng = random.Random(0)
    for spec in train_specs:
        failure = first_draft(spec, QUIET, rng).failure(spec)
        if spec.repository not in NEW_REPOSITORIES:
            assert failure is None
        else:
            assert failure is None or failure[0] == "tool_not_found"


def test_a_new_repository_has_guesses_of_its_own_each_as_likely(train_specs: list[TaskSpec]) -> None:
    rng = random.Random(0)
    guesses: dict[str, Counter[str]] = {name: Counter() for name in NEW_REPOSITORIES}
    new = [spec for spec in train_specs if spec.repository in NEW_REPOSITORIES]
    for spec in new * 30:
        guesses[spec.repository][first_draft(spec, Noise(), rng).content.tool] += 1
    first, second = (set(guesses[name]) for name in NEW_REPOSITORIES)
    assert not first & second
    for name, counts in guesses.items():
        assert set(counts) == set(CANDIDATES_OF[name])
        assert TOOL_OF[name] in counts
        shares = [count / counts.total() for count in counts.values()]
        assert max(shares) - min(shares) < 0.06


def test_first_calls_make_every_kind_of_error(train_specs: list[TaskSpec]) -> None:
    rng = random.Random(0)
    failures = [first_draft(spec, Noise(), rng).failure(spec) for spec in train_specs * 3]
    share = Counter(failure[0] for failure in failures if failure is not None)
    assert all(share[kind] / len(failures) > 0.04 for kind in KINDS), share


def test_messages_are_those_of_the_environment(train_specs: list[TaskSpec]) -> None:
    rng = random.Random(1)
    messages = Counter(
        failure[1].split(":")[0]
        for spec in train_specs
        if (failure := first_draft(spec, Noise(), rng).failure(spec)) is not None
    )
    assert set(messages) <= {"ToolError", "JSONDecodeError", "TypeError", "NameError", "LookupError", "AssertionError"}
