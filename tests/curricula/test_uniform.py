"""Shuffled passes: coverage, determinism, checkpoints, and refusals."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_rl.curricula.uniform import UniformCurriculum

TASKS = [f"task{i}" for i in range(7)]


def started(seed: int = 3, tasks: list[str] | None = None) -> UniformCurriculum:
    curriculum = UniformCurriculum()
    curriculum.reset(tasks or TASKS, seed=seed)
    return curriculum


@given(st.integers(1, 9), st.lists(st.integers(0, 15), max_size=10), st.integers())
def test_every_pass_holds_every_task_once(num_tasks: int, batches: list[int], seed: int) -> None:
    tasks = [f"task{i}" for i in range(num_tasks)]
    curriculum = started(seed, tasks)
    drawn = [task for size in batches for task in curriculum.sample(size)]
    assert len(drawn) == sum(batches)
    for start in range(0, len(drawn) - num_tasks + 1, num_tasks):
        assert sorted(drawn[start : start + num_tasks]) == tasks
    counts = Counter(drawn)
    assert max((counts[task] for task in tasks), default=0) - min((counts[task] for task in tasks), default=0) <= 1


def test_the_order_depends_on_the_seed_and_the_pass_only() -> None:
    first, again, other = started(), started(), started(seed=4)
    passes = [first.sample(7) for _ in range(4)]
    assert passes == [again.sample(7) for _ in range(4)]
    assert len({tuple(one) for one in passes}) > 1
    assert [other.sample(7) for _ in range(4)] != passes
    first.reset(TASKS, seed=3)
    assert first.sample(7) == passes[0]


@given(st.lists(st.integers(0, 9), max_size=6), st.lists(st.integers(0, 9), max_size=6))
def test_a_resumed_run_draws_what_the_uninterrupted_one_would(before: list[int], after: list[int]) -> None:
    uninterrupted, resumed = started(), started(seed=99)
    for size in before:
        uninterrupted.sample(size)
    uninterrupted.update("task0", 1, 2)
    resumed.load_state_dict(json.loads(json.dumps(uninterrupted.state_dict())))
    assert resumed.metrics() == uninterrupted.metrics()
    assert resumed.weights() == uninterrupted.weights()
    assert [resumed.sample(size) for size in after] == [uninterrupted.sample(size) for size in after]


def test_another_task_set_is_refused() -> None:
    state = started().state_dict()
    for tasks in (TASKS[:-1], [*TASKS, "new"], TASKS[::-1]):
        with pytest.raises(ValueError, match="written for another list of tasks"):
            started(tasks=tasks).load_state_dict(state)


def test_weights_are_the_chances_of_the_next_draw() -> None:
    curriculum = started()
    assert curriculum.weights() == dict.fromkeys(TASKS, 1 / 7)
    gone = curriculum.sample(5)
    weights = curriculum.weights()
    assert sum(weights.values()) == pytest.approx(1.0)
    assert {task for task in TASKS if weights[task] == 0.0} == set(gone)
    curriculum.sample(2)
    assert curriculum.weights() == dict.fromkeys(TASKS, 1 / 7)


def test_metrics_count_passes_and_outcomes() -> None:
    curriculum = started()
    assert curriculum.metrics() == {"curriculum/epoch": 0.0, "curriculum/num_tasks": 7.0}
    curriculum.sample(9)
    curriculum.update("task1", successes=3, attempts=8)
    curriculum.update("task2", successes=0, attempts=4)
    metrics = curriculum.metrics()
    assert metrics["curriculum/epoch"] == pytest.approx(9 / 7)
    assert metrics["curriculum/solve_rate"] == pytest.approx(0.25)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="call reset before sample"):
        UniformCurriculum().sample(1)
    with pytest.raises(ValueError, match="task_ids must not be empty"):
        UniformCurriculum().reset([], seed=0)
    with pytest.raises(ValueError, match="task_ids must be unique, 1 are repeated"):
        UniformCurriculum().reset(["a", "a"], seed=0)
    curriculum = started()
    with pytest.raises(ValueError, match="num must be at least 0, got -1"):
        curriculum.sample(-1)
    with pytest.raises(ValueError, match="one of the tasks given to reset, got 'nope'"):
        curriculum.update("nope", 0, 1)
    with pytest.raises(ValueError, match=r"successes must be in \[0, attempts=2\], got 3"):
        curriculum.update("task0", 3, 2)


def test_it_prefers_no_task_and_has_no_knob() -> None:
    curriculum = started()
    assert curriculum.preference() == pytest.approx(1.0)
    assert curriculum.knobs() == []
