"""Calls that are wrong on purpose fail the way they are meant to."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from composer_rl.envs.substrates.micro.contents import Content, true_content
from composer_rl.envs.substrates.micro.drafts import (
    BREAKS,
    GARBLED_BODIES,
    OTHER_OPERATIONS,
    QUIET,
    WRONG_FUNCTIONS,
    Draft,
    Noise,
    failing_draft,
    first_draft,
    true_draft,
)
from composer_rl.envs.substrates.micro.hidden_rules import CANDIDATES_OF, NEW_REPOSITORIES, TOOL_OF
from composer_rl.envs.substrates.micro.names import PLACEHOLDER_NAMES, PLACEHOLDER_NUMBERS, PLACEHOLDER_WORDS
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


def known(specs: list[TaskSpec]) -> list[TaskSpec]:
    return [spec for spec in specs if spec.repository not in NEW_REPOSITORIES]


def one_operation(spec: TaskSpec, *, vague: bool) -> bool:
    return not spec.target.definition.is_mixture and spec.target.vague == vague


def differs(item: str) -> Callable[[Draft, Content], bool]:
    return lambda draft, truth: getattr(draft.content, item) != getattr(truth, item)


def broken(draft: Draft, truth: Content) -> bool:
    return draft.break_index is not None


def every(spec: TaskSpec) -> bool:
    return True


@pytest.mark.parametrize(
    ("field", "share", "is_wrong", "concerns"),
    [
        ("tool", 0.09, differs("tool"), every),
        ("key", 0.13, differs("key"), every),
        ("parameter", 0.12, differs("parameter"), every),
        ("function", 0.04, differs("function"), lambda spec: spec.context is not None),
        ("vague_constant", 0.4, differs("n"), lambda spec: one_operation(spec, vague=True)),
        ("clear_constant", 0.2, differs("n"), lambda spec: one_operation(spec, vague=False)),
        ("malformed", 0.1, broken, every),
    ],
)
def test_each_kind_of_noise_is_as_frequent_as_its_value(
    field: str,
    share: float,
    is_wrong: Callable[[Draft, Content], bool],
    concerns: Callable[[TaskSpec], bool],
    train_specs: list[TaskSpec],
) -> None:
    """The floor that ships was trained with these values; 4000 drafts give a share to within 0.03 (4 sigma)."""
    assert getattr(Noise(), field) == share
    assert getattr(QUIET, field) == 0.0
    noise = replace(QUIET, **{field: share})
    specs = [spec for spec in known(train_specs) if concerns(spec)]
    rng = random.Random(0)
    chosen = (specs * (4000 // len(specs) + 1))[:4000]
    wrong = sum(is_wrong(first_draft(spec, noise, rng), true_content(spec)) for spec in chosen)
    assert wrong / len(chosen) == pytest.approx(share, abs=0.03)
    untouched = [spec for spec in known(train_specs) if not concerns(spec)]
    assert not any(is_wrong(first_draft(spec, noise, rng), true_content(spec)) for spec in untouched)


def test_wrong_constants_are_placeholders_unless_the_noise_says_otherwise(train_specs: list[TaskSpec]) -> None:
    assert Noise().placeholder == 1.0
    rng = random.Random(0)
    placeholders: set[Any] = {*PLACEHOLDER_NUMBERS, *PLACEHOLDER_WORDS}
    always = replace(QUIET, vague_constant=1.0, clear_constant=1.0)
    for spec in known(train_specs):
        if spec.target.definition.is_mixture:
            continue
        assert first_draft(spec, always, rng).content.n in placeholders
        drawn = first_draft(spec, replace(always, placeholder=0.0), rng).content.n
        assert drawn != spec.target.n
        assert drawn not in placeholders


def test_wrong_parameters_are_placeholders_three_times_in_four(train_specs: list[TaskSpec]) -> None:
    rng = random.Random(0)
    always = replace(QUIET, parameter=1.0)
    names = [first_draft(spec, always, rng).content.parameter for spec in known(train_specs) * 5]
    assert sum(name in PLACEHOLDER_NAMES for name in names) / len(names) == pytest.approx(0.75, abs=0.05)


def test_raising_drafts_are_mixed_as_stated(train_specs: list[TaskSpec]) -> None:
    rng = random.Random(0)
    specs = known(train_specs) * 5
    drafts = [(failing_draft(spec, "runtime_error", QUIET, rng), true_content(spec)) for spec in specs]
    functions = sum(draft.content.function != truth.function for draft, truth in drafts) / len(drafts)
    garbled = sum(draft.body is not None for draft, _ in drafts) / len(drafts)
    assert functions == pytest.approx(WRONG_FUNCTIONS, abs=0.04)
    assert garbled == pytest.approx(GARBLED_BODIES, abs=0.04)
    assert all(
        draft.content.parameter != truth.parameter
        for draft, truth in drafts
        if draft.body is None and draft.content.function == truth.function
    )


def test_failing_bodies_do_another_operation_as_often_as_stated(train_specs: list[TaskSpec]) -> None:
    rng = random.Random(0)
    specs = [spec for spec in known(train_specs) if not spec.target.definition.is_mixture] * 5
    others = sum(failing_draft(spec, "test_failure", QUIET, rng).body is not None for spec in specs)
    assert others / len(specs) == pytest.approx(OTHER_OPERATIONS, abs=0.04)


def test_noise_outside_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"tool must be in \[0, 1\], got 1.5"):
        Noise(tool=1.5)
