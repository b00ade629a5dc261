"""Generated tasks: deterministic, split without leaks, with tests that catch corrupted bodies."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import islice

from composer_rl.envs.substrates.micro.hidden_rules import NEW_REPOSITORIES, REPOSITORIES
from composer_rl.envs.substrates.micro.modules import FunctionSpec
from composer_rl.envs.substrates.micro.recipes import UNSEEN_MIXTURES
from composer_rl.envs.substrates.micro.tasks import (
    Mix,
    TaskSpec,
    TestCase,
    generate,
    survives_a_mutation,
)


def body_of(function: FunctionSpec) -> tuple[object, ...]:
    return function.recipe, function.n, function.m


def test_every_task_has_three_and_two_tests(train_specs: list[TaskSpec], heldout_specs: list[TaskSpec]) -> None:
    for spec in train_specs + heldout_specs:
        assert len(spec.fail_to_pass) == 3
        assert len(spec.pass_to_pass) == 2
        assert {case.function for case in spec.fail_to_pass} == {spec.target.name}


def test_ids_are_content_hashes_and_the_same_in_another_process(train_specs: list[TaskSpec]) -> None:
    assert len({spec.task_id for spec in train_specs}) == len(train_specs)
    code = (
        "from composer_rl.envs.substrates.micro.tasks import Mix, generate\n"
        "print(next(generate('train', seed=3, mix=Mix())).task_id)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == train_specs[0].task_id


def test_the_payload_reads_back(train_specs: list[TaskSpec]) -> None:
    for spec in train_specs[:50]:
        assert TaskSpec.from_payload(spec.payload()) == spec


def test_splits_share_no_body_and_no_held_out_body_is_context(
    train_specs: list[TaskSpec], heldout_specs: list[TaskSpec]
) -> None:
    trained = {body_of(spec.target) for spec in train_specs}
    held = {body_of(spec.target) for spec in heldout_specs}
    assert not trained & held
    contexts = [spec.context for spec in train_specs + heldout_specs if spec.context is not None]
    assert all(context.split == "train" for context in contexts)
    assert not {body_of(context) for context in contexts} & held


def test_unseen_mixtures_are_held_out_only(train_specs: list[TaskSpec], heldout_specs: list[TaskSpec]) -> None:
    assert not any(spec.target.recipe in UNSEEN_MIXTURES for spec in train_specs)
    assert any(spec.target.recipe in UNSEEN_MIXTURES for spec in heldout_specs)


def test_shares_of_the_mix(train_specs: list[TaskSpec]) -> None:
    count = len(train_specs)
    two = sum(spec.context is not None for spec in train_specs) / count
    new = sum(spec.repository in NEW_REPOSITORIES for spec in train_specs) / count
    assert 0.14 < two < 0.26
    assert 0.17 < new < 0.33
    assert {spec.repository for spec in train_specs} == set(REPOSITORIES)


def test_weak_tests_are_caught() -> None:
    cap = FunctionSpec(recipe="cap", name="calc", parameter="x", n=50)
    weak = tuple(TestCase(function="calc", args=(value,), expected=value) for value in (1, 2, 3))
    assert survives_a_mutation(cap, weak)
    strong = tuple(TestCase(function="calc", args=(value,), expected=cap(value)) for value in (99, 3, 49))
    assert not survives_a_mutation(cap, strong)


def test_the_broken_module_fails_the_targets_and_passes_the_rest(train_specs: list[TaskSpec]) -> None:
    for spec in train_specs[:60]:
        scope: dict[str, object] = {}
        exec(spec.module_source("..."), scope)
        assert all(scope[case.function](*case.args) != case.expected for case in spec.fail_to_pass)  # type: ignore[operator]
        assert all(scope[case.function](*case.args) == case.expected for case in spec.pass_to_pass)  # type: ignore[operator]


def test_two_thousand_tasks_are_made_quickly() -> None:
    started = time.process_time()
    assert sum(1 for _ in islice(generate("train", seed=0, mix=Mix()), 2000)) == 2000
    assert time.process_time() - started < 10
