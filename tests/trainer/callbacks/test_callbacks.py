"""Metrics reach trackers and observers, held-out figures keep their "before", state survives, rollouts are readable."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from composer_rl.trainer.callbacks.heldout import HeldoutCallback
from composer_rl.trainer.callbacks.metrics import MetricsCallback
from composer_rl.trainer.callbacks.resumable import ResumableCallback
from composer_rl.trainer.callbacks.rollout_log import RolloutLog, RolloutLogCallback
from composer_rl.trainer.rollout_metrics import rollout_metrics
from composer_rl.trainer.timings import Timings
from composer_rl.types import Rollout, RolloutTurn, ToolError


class Recorder:
    """Stands where a tracker and an observer would: keeps what it is told."""

    def __init__(self) -> None:
        self.records: list[tuple[int, dict[str, float]]] = []
        self.observed: list[dict[str, float]] = []

    def log(self, metrics: dict[str, float], *, step: int) -> None:
        self.records.append((step, metrics))

    def phase(self, text: str) -> None:
        """What the run is doing is no record."""

    def observe(self, metrics: dict[str, float]) -> None:
        self.observed.append(metrics)


def state(step: int, max_steps: int = 10) -> Any:
    return SimpleNamespace(global_step=step, max_steps=max_steps, is_world_process_zero=True, num_input_tokens_seen=0)


def rollout(task_id: str, *rewards: float, kind: str = "test_failure") -> Rollout:
    turns = [
        RolloutTurn(
            start=i,
            end=i + 1,
            text=f"try {i}",
            reward=reward,
            error=None if reward >= 1 else ToolError(kind=kind, message="no"),
            observation=None if reward >= 1 else "no",
        )
        for i, reward in enumerate(rewards)
    ]
    return Rollout(
        task_id=task_id,
        prompt_ids=[1],
        completion_ids=[2] * len(turns),
        logprobs=[-0.5] * len(turns),
        env_mask=[1] * len(turns),
        turns=turns,
        reward=rewards[-1],
        stop_reason="solved" if rewards[-1] >= 1 else "max_turns",
    )


def test_metrics_callback_forwards_scalars_and_measures_throughput() -> None:
    recorder = Recorder()
    callback = MetricsCallback(recorder, Timings(), [recorder])  # type: ignore[arg-type]
    callback.on_train_begin(None, state(0), None)
    callback.on_log(None, state(1), None, logs={"reward": 0.5, "num_tokens": 100.0, "nan": float("nan"), "text": "x"})
    callback.on_log(None, state(1), None, logs={"train_runtime": 1.0, "reward": 9.0})
    ((step, metrics),) = recorder.records
    assert step == 1
    assert metrics["reward"] == 0.5
    assert metrics["tokens_per_s"] > 0
    assert not {"nan", "text"} & metrics.keys()
    assert recorder.observed == [metrics]


def test_heldout_runs_before_during_and_after_and_never_twice() -> None:
    recorder, calls = Recorder(), []

    def evaluate(model: Any, step: int) -> dict[str, float]:
        calls.append(step)
        return {"heldout/solve_rate": step / 10, "heldout/num_tasks": 7.0}

    callback = HeldoutCallback(evaluate, every=4, tracker=recorder, timings=Timings())  # type: ignore[arg-type]
    callback.on_train_begin(None, state(0), None)
    for step in range(1, 9):
        callback.on_step_end(None, state(step, max_steps=8), None)
    callback.on_train_end(None, state(8, max_steps=8), None)
    assert calls == [0, 4, 8]
    assert callback.result() == {
        "heldout/solve_rate_before": 0.0,
        "heldout/solve_rate_after": 0.8,
        "heldout/num_tasks": 7.0,
    }


def test_a_resumed_run_keeps_the_figures_of_step_zero() -> None:
    callback = HeldoutCallback(
        lambda model, step: {"heldout/solve_rate": 0.9},
        every=0,
        tracker=Recorder(),  # type: ignore[arg-type]
        timings=Timings(),
    )
    callback.load_state_dict({"before": {"heldout/solve_rate": 0.3}})
    callback.on_train_begin(None, state(5), None)
    callback.on_train_end(None, state(10), None)
    assert callback.result() == {"heldout/solve_rate_before": 0.3, "heldout/solve_rate_after": 0.9}


class Counter:
    def __init__(self) -> None:
        self.value = 0

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.value = saved["value"]


def test_resumable_parts_are_saved_last_and_restored(tmp_path: Path) -> None:
    counter = Counter()
    counter.value = 5
    (tmp_path / "checkpoint-3").mkdir()
    ResumableCallback({"counter": counter}).on_save(SimpleNamespace(output_dir=str(tmp_path)), state(3), None)
    fresh = Counter()
    ResumableCallback({"counter": fresh}).restore(tmp_path / "checkpoint-3")
    assert fresh.value == 5
    with pytest.raises(ValueError, match="resume with the configuration"):
        ResumableCallback({"other": fresh}).restore(tmp_path / "checkpoint-3")


def test_rollouts_are_logged_as_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    log = RolloutLog(path, prompt_of=lambda task_id: [{"role": "user", "content": task_id}], per_step=2)
    rollouts = [rollout("a", 1.0), rollout("b", 0.0, 1.0), rollout("c", 1.0), rollout("b", 1.0)]
    callback = RolloutLogCallback(log, every=2, rollouts=lambda: rollouts)
    for step in (1, 2):
        callback.on_step_end(None, state(step), None)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["task_id"] for record in records] == ["b", "c"], "a failed one and a solved one"
    assert records[0]["turns"][0]["error_kind"] == "test_failure"
    assert records[0]["turns"][1]["error_kind"] is None
    assert records[0]["prompt"] == [{"role": "user", "content": "b"}]
    assert {record["step"] for record in records} == {2}


def test_text_that_utf8_cannot_hold_is_logged_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    broken = rollout("a", 0.0)
    broken.turns[0].text = "\ud800 name"
    RolloutLog(path, prompt_of=lambda task_id: [], per_step=1).write([broken], step=0, split="train")
    assert json.loads(path.read_text())["turns"][0]["text"] == "? name"


def test_rollout_metrics_by_hand() -> None:
    rollouts = [rollout("a", 1.0), rollout("b", 0.0, 1.0), rollout("c", 0.0, 0.5, 0.0, kind="json_decode")]
    assert rollout_metrics([]) == {}
    metrics = rollout_metrics(rollouts)
    assert metrics["rollout/solve_rate_first"] == pytest.approx(1 / 3)
    assert metrics["rollout/solve_rate"] == pytest.approx(2 / 3)
    assert metrics["rollout/recovery_rate"] == pytest.approx(1 / 2)
    assert metrics["rollout/num_turns"] == pytest.approx(2.0)
    assert metrics["errors/json_decode"] == pytest.approx(1 / 3)
    assert metrics["errors/test_failure"] == pytest.approx(1 / 3)


def test_timings_add_up_and_reset() -> None:
    timings = Timings()
    timings.add("rollout", 1.0)
    timings.add("rollout", 0.5)
    with pytest.raises(RuntimeError), timings.measure("eval"):
        raise RuntimeError
    taken = timings.take()
    assert taken["time/rollout_s"] == 1.5
    assert taken["time/eval_s"] >= 0.0
    assert timings.take() == {}
