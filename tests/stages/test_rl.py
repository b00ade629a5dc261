"""Train a small model from the command line: models of both kinds, every objective, LoRA, resume."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from composer_rl.stages.rl import RLStage

Train = Callable[..., tuple[int, Path]]


def result(run_dir: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((run_dir / "result.json").read_text())
    return record


def metrics(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_a_model_by_path_trains_and_its_checkpoint_loads(train: Train, kind: str) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    code, run_dir = train("max_steps=2", kind=kind)
    assert code == 0
    record = result(run_dir)
    assert record["status"] == "succeeded"
    assert record["metrics"]["train/steps"] == 2
    assert {"heldout/reward_before", "heldout/reward_after", "heldout/num_tasks"} <= record["metrics"].keys()
    model = AutoModelForCausalLM.from_pretrained(run_dir / "checkpoint")
    tokenizer = AutoTokenizer.from_pretrained(run_dir / "checkpoint")
    assert model.config.vocab_size == len(tokenizer)
    assert not list(run_dir.rglob("checkpoint/*.bin")), "no pickle beside the model"
    assert (run_dir / "report.html").stat().st_size > 0
    steps = [record["step"] for record in metrics(run_dir)]
    assert steps == sorted(steps)
    rollouts = [json.loads(line) for line in (run_dir / "rollouts.jsonl").read_text().splitlines()]
    assert rollouts[0]["prompt"][-1]["role"] == "user"


@pytest.mark.slow
@pytest.mark.parametrize("po", ["grpo", "bnpo", "dapo", "gspo", "cispo", "sapo", "luspo", "vespo"])
def test_every_objective_trains(train: Train, po: str) -> None:
    extra = [] if po != "dapo" else ["rollout.prompts_per_rollout=16"]
    code, run_dir = train(f"po={po}", "max_steps=2", *extra)
    assert code == 0
    rows = {row["knob"]: row for row in result(run_dir)["engagement"]}
    assert rows, "every preset has a knob"


def test_trl_generates_where_asked_to(train: Train) -> None:
    code, run_dir = train("rollout=trl", "max_steps=2")
    assert code == 0
    records = [record for record in metrics(run_dir) if "reward" in record]
    assert len(records) == 2
    assert "rollout/tokens_per_s" not in records[0], "our sampler took no part"


def test_a_channel_that_never_acted_fails_the_run_and_keeps_its_figures(
    train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    code, run_dir = train(
        "+loss.channels.idle._target_=tests.stages.idle_channel.Idle", "hint.in_rollout=true", "max_steps=2"
    )
    assert code == 1
    assert "error: loss.channels.idle.weight never engaged" in capsys.readouterr().err
    record = result(run_dir)
    assert record["error"]["type"] == "EngagementError"
    assert record["metrics"]["train/steps"] == 2
    assert (run_dir / "checkpoint" / "model.safetensors").is_file()
    notes = {row["knob"]: row["note"] for row in record["engagement"]}
    assert notes["hint.in_rollout"].startswith("never engaged: env.max_turns=1")
    assert [r["hints/num_shown"] for r in metrics(run_dir) if "reward" in r] == [0.0, 0.0]


def test_lora_trains_adapters(train: Train) -> None:
    code, run_dir = train("model.lora.r=2", "max_steps=2", "optim.learning_rate=0.1")
    assert code == 0
    weights = load_file(run_dir / "checkpoint" / "adapter_model.safetensors")
    assert weights
    assert all("lora_" in name for name in weights)
    assert any(bool(value.abs().sum() > 0) for name, value in weights.items() if "lora_B" in name)


def test_a_resumed_run_ends_where_an_uninterrupted_one_does(train: Train) -> None:
    """4 steps at once, or 2 and then 2 more from the checkpoint: same prompts, same samples, same weights."""
    assert train("max_steps=4", "stage.save_every=2", folder="whole")[0] == 0
    code, run_dir = train("max_steps=2", "stage.save_every=2", folder="parts")
    assert code == 0
    code, run_dir = train("max_steps=4", "stage.save_every=2", "resume=true", folder="parts")
    assert code == 0
    start = load_file(run_dir.parent / "whole" / "checkpoint-2" / "model.safetensors")
    whole = load_file(run_dir.parent / "whole" / "checkpoint" / "model.safetensors")
    assert any(bool((whole[name] != start[name]).any()) for name in whole), "the resumed steps must change something"
    parts = load_file(run_dir / "checkpoint" / "model.safetensors")
    assert all(bool((whole[name] == parts[name]).all()) for name in whole)
    rewards = {r["step"]: r["reward"] for r in metrics(run_dir) if "reward" in r}
    expected = {r["step"]: r["reward"] for r in metrics(run_dir.parent / "whole") if "reward" in r}
    assert rewards == expected
    before = {"heldout/reward_before", "heldout/num_tasks"}
    assert {name: result(run_dir)["metrics"][name] for name in before} == {
        name: result(run_dir.parent / "whole")["metrics"][name] for name in before
    }


def test_resuming_a_complete_run_takes_no_step(train: Train) -> None:
    assert train("max_steps=2", "stage.save_every=1")[0] == 0
    code, run_dir = train("max_steps=2", "stage.save_every=1", "resume=true")
    assert code == 0
    record = result(run_dir)
    assert record["metrics"]["train/steps"] == 2
    assert "heldout/reward_after" in record["metrics"]
    assert max(r["step"] for r in metrics(run_dir)) == 2


def test_resuming_without_a_checkpoint_says_so(train: Train, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = train("max_steps=2", "stage.save_every=0", folder="none")
    assert code == 0
    code, _ = train("max_steps=4", "resume=true", folder="none")
    assert code == 2
    assert "no complete checkpoint" in capsys.readouterr().err


def test_the_same_seed_gives_the_same_run(train: Train) -> None:
    runs = []
    for folder in ("first", "second"):
        code, run_dir = train("max_steps=2", "seed=5", folder=folder)
        assert code == 0
        runs.append([r["loss"] for r in metrics(run_dir) if "loss" in r])
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["rollout.prompts_per_rollout=5", "po.updates_per_rollout=3"], "rollout.prompts_per_rollout=5"),
        (["po=dapo", "po.beta=0.1", "rollout.prompts_per_rollout=16"], "cannot be combined with: beta > 0"),
        (["stage.keep_checkpoints=1"], "keep_checkpoints must be at least 2"),
        (["max_steps=0"], "max_steps"),
    ],
)
def test_settings_that_do_not_fit_together(
    train: Train, capsys: pytest.CaptureFixture[str], overrides: list[str], message: str
) -> None:
    code, run_dir = train(*overrides)
    assert code == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert message in errors[0]
    assert not run_dir.exists(), "nothing is written for bad input"


def test_a_reward_that_reads_grades_needs_an_environment_that_gives_them(
    train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    code, run_dir = train(reward=("reward=execution",))
    assert code == 2
    assert "does not grade" in capsys.readouterr().err
    assert not run_dir.exists()


def test_stage_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="num_heldout must be at least 1"):
        RLStage(num_heldout=0)


def test_a_run_without_a_gradient_says_so(train: Train, capsys: pytest.CaptureFixture[str]) -> None:
    flat = "reward.function._target_=tests.stages.flat_reward.flat"
    code, run_dir = train(flat, "max_steps=2", "tracker.trackers.console.mode=plain")
    assert code == 0
    (warning,) = result(run_dir)["warnings"]
    assert warning.startswith("no step had a gradient: every group had the same reward in all 2 steps")
    assert "warning: no step had a gradient" in capsys.readouterr().out
    assert "no step had a gradient" in (run_dir / "report.html").read_text()


def test_a_run_with_a_gradient_has_no_warning(train: Train) -> None:
    code, run_dir = train("max_steps=2")
    assert code == 0
    assert result(run_dir)["warnings"] == []


def test_a_prompt_without_room_for_an_answer_is_named_before_training(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "prompts.jsonl"
    rows = [{"prompt": "a"}, {"prompt": "b"}, {"prompt": "long " * 4000}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, run_dir = train(f"env.path={path}", "env.heldout_fraction=0", "max_steps=2")
    assert code == 2
    assert f"the prompt of {path}, line 3 has " in " ".join(capsys.readouterr().err.split())
    assert not (run_dir / "metrics.jsonl").read_text()
