"""The embedded testbed as an environment, graded in the real sandbox."""

from __future__ import annotations

import gc
import json
import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from composer_rl.envs.micro import MicroEnvironment
from composer_rl.envs.substrates.micro.hidden_rules import TOOLS
from composer_rl.hints.templates import dispatch
from composer_rl.sandboxes.base import Evaluation, EvaluationJob
from composer_rl.sandboxes.process import ProcessSandbox
from composer_rl.types import ERROR_KINDS, StepResult, Task
from tests.sandboxes.helpers import open_or_skip


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ProcessSandbox]:
    opened = open_or_skip(num_workers=1)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def env(sandbox: ProcessSandbox) -> MicroEnvironment:
    environment = MicroEnvironment(num_train=40, num_heldout=40)
    environment.open(sandbox)
    return environment


def gold(env: MicroEnvironment, task: Task) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(env.gold_action(task))
    return record


def body_key(call: dict[str, Any]) -> str:
    return next(key for key in call["arguments"] if key != "function")


def with_body(env: MicroEnvironment, task: Task, body: str) -> str:
    call = gold(env, task)
    call["arguments"][body_key(call)] = body
    return json.dumps(call)


def step(env: MicroEnvironment, task: Task, *answers: str) -> list[StepResult]:
    episode = env.start(task)
    return [env.step([episode], [answer])[0] for answer in answers]


def test_gold_answers_solve_every_task_in_one_batch(env: MicroEnvironment) -> None:
    tasks = [*env.tasks("train"), *env.tasks("heldout")]
    results = env.step([env.start(task) for task in tasks], [env.gold_action(task) for task in tasks])
    assert all(result == StepResult(reward=1.0, done=True) for result in results)


def test_an_empty_body_scores_nothing(env: MicroEnvironment) -> None:
    tasks = env.tasks("heldout")
    answers = [with_body(env, task, "...") for task in tasks]
    assert all(result.reward == 0.0 for result in env.step([env.start(task) for task in tasks], answers))


def test_part_of_the_asserts_is_part_of_the_reward(env: MicroEnvironment) -> None:
    task = next(
        task for task in env.tasks("train") if task.payload["target"]["recipe"] in ("add", "sum_add", "len_add")
    )
    shown = task.payload["fail_to_pass"][0]
    (result,) = step(env, task, with_body(env, task, f"return {shown[2]!r}"))
    assert result.reward == pytest.approx(1 / 3)
    assert result.error is not None
    assert result.error.kind == "test_failure"
    assert not result.done


def test_each_fault_comes_back_as_its_kind(env: MicroEnvironment) -> None:
    task = env.tasks("train")[0]
    call = gold(env, task)
    wrong_tool = call | {"name": next(tool for tool in TOOLS if tool != call["name"])}
    wrong_key = call | {"arguments": {"function": call["arguments"]["function"], "nope": "return 1"}}
    faults = {
        "tool_not_found": json.dumps(wrong_tool),
        "json_decode": env.gold_action(task)[:-1],
        "type_error": json.dumps(wrong_key),
        "runtime_error": with_body(env, task, "return arg"),
        "test_failure": with_body(env, task, "return 12345"),
    }
    for kind, answer in faults.items():
        first, second = step(env, task, answer, answer)
        assert first.error is not None
        assert (first.error.kind, first.reward, first.done) == (kind, 0.0, False)
        assert first.observation == {"role": "tool", "content": first.error.message}
        assert second.error is not None
        assert second.error.kind == "repeated_failure"
        assert second.error.meta["root_kind"] == kind
        assert second.error.message == f"RepeatedFailure: {first.error.message}"
    assert {*faults, "repeated_failure"} == set(ERROR_KINDS)


def test_a_syntax_error_is_a_runtime_error(env: MicroEnvironment) -> None:
    task = env.tasks("train")[0]
    (result,) = step(env, task, with_body(env, task, "return ("))
    assert result.error is not None
    assert result.error.kind == "runtime_error"
    assert result.error.message == "SyntaxError: invalid syntax"


def test_an_endless_loop_is_a_runtime_error(sandbox: ProcessSandbox) -> None:
    env = MicroEnvironment(num_train=1, num_heldout=1)
    env.open(sandbox)
    task = env.tasks("train")[0]
    (result,) = step(env, task, with_body(env, task, "while True: pass"))
    assert result.error is not None
    assert result.error.kind == "runtime_error"
    assert result.reward == 0.0


def test_the_last_turn_ends_the_episode_without_an_observation(env: MicroEnvironment) -> None:
    results = step(env, env.tasks("train")[0], "a", "b", "c")
    assert [result.done for result in results] == [False, False, True]
    assert results[-1].observation is None
    assert results[-1].error is not None


def test_a_broken_kept_test_costs_everything(env: MicroEnvironment) -> None:
    task = next(task for task in env.tasks("train") if task.payload["context"] is None)
    body = gold(env, task)["arguments"]
    name, text = body["function"], body[next(key for key in body if key != "function")]
    answer = with_body(env, task, f"{name}.__doc__ = ''\n{text}")
    (result,) = step(env, task, answer)
    assert result.reward == 0.0
    assert result.error is not None


@pytest.mark.parametrize("kind", ["tool_not_found", "json_decode", "type_error", "runtime_error", "test_failure"])
def test_wrong_hints_say_something_else_than_right_ones(kind: str, env: MicroEnvironment) -> None:
    for task in env.tasks("heldout")[:10]:
        call = gold(env, task)
        answer = {
            "tool_not_found": json.dumps(call | {"name": "nope"}),
            "json_decode": "{",
            "type_error": json.dumps(call | {"arguments": {}}),
            "runtime_error": with_body(env, task, "return arg"),
            "test_failure": with_body(env, task, "return 12345"),
        }[kind]
        (result,) = step(env, task, answer)
        assert result.error is not None
        meta = result.error.meta
        right, oracle, wrong = (dispatch(kind, context) for context in (meta, meta["oracle"], meta["wrong"]))
        assert right == oracle
        assert wrong not in (None, right)
        assert json.loads(json.dumps(meta)) == meta


class CountingSandbox(ProcessSandbox):
    """Counts the calls of `evaluate`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.batches: list[int] = []

    def evaluate(self, jobs: Sequence[EvaluationJob]) -> list[Evaluation]:
        self.batches.append(len(jobs))
        return super().evaluate(jobs)


def test_a_batch_is_one_call_of_the_sandbox_and_only_for_answers_that_run() -> None:
    open_or_skip(num_workers=1).close()
    with CountingSandbox(num_workers=1) as sandbox:
        env = MicroEnvironment(num_train=4, num_heldout=1)
        env.open(sandbox)
        tasks = env.tasks("train")
        answers = [env.gold_action(task) for task in tasks[:3]] + ["no call"]
        env.step([env.start(task) for task in tasks], answers)
        env.step([env.start(tasks[0])], ["no call"])
        assert sandbox.batches == [3]


def test_answers_that_agree_run_once_and_each_gets_its_grade() -> None:
    open_or_skip(num_workers=1).close()
    with CountingSandbox(num_workers=1) as sandbox:
        env = MicroEnvironment(num_train=4, num_heldout=1)
        env.open(sandbox)
        first, second = env.tasks("train")[:2]
        right, wrong = env.gold_action(first), env.gold_action(first).replace("return", "return 1 or")
        answers = [right, wrong, right, right, env.gold_action(second), wrong]
        results = env.step([env.start(task) for task in (first, first, first, first, second, first)], answers)
        assert sandbox.batches == [3]
        assert [result.reward == 1.0 for result in results] == [True, False, True, True, True, False]
        assert [result.done for result in results] == [True, False, True, True, True, False]


def test_splits_are_disjoint_and_stay_the_same() -> None:
    env = MicroEnvironment(num_train=50, num_heldout=50)
    train, heldout = ({task.task_id for task in env.tasks(split)} for split in ("train", "heldout"))
    assert len(train) == len(heldout) == 50
    assert not train & heldout
    assert [task.task_id for task in MicroEnvironment(num_train=50).tasks("train")] == [
        task.task_id for task in env.tasks("train")
    ]


def test_the_module_needs_no_torch() -> None:
    import subprocess

    code = "import sys, composer_rl.envs.micro; print('torch' in sys.modules or 'transformers' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_turns": 0}, "max_turns must be at least 1, got 0"),
        ({"num_train": 0}, "num_train must be at least 1, got 0"),
        ({"vague_share": 1.5}, r"vague_share must be in \[0, 1\], got 1.5"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MicroEnvironment(**settings)


def test_a_step_needs_a_sandbox_and_one_answer_an_episode() -> None:
    env = MicroEnvironment(num_train=1, num_heldout=1)
    with pytest.raises(RuntimeError, match="open"):
        env.step([], [])


class Held:
    """Stands for what a caller of `step` holds, such as the keys and values of a batch of conversations."""


def test_a_rejected_call_keeps_nothing_of_its_caller_alive(env: MicroEnvironment) -> None:
    task = env.tasks("train")[0]

    def rollout() -> weakref.ref[Held]:
        held = Held()
        env.step([env.start(task), env.start(task)], ["no JSON", '{"name": "nowhere", "arguments": {}}'])
        return weakref.ref(held)

    gc.collect()
    gc.disable()
    try:
        assert rollout()() is None, "only the garbage collector would free it"
    finally:
        gc.enable()
