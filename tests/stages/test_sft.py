"""Supervised training from the command line: the generator's floor, conversations of one's own, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from composer_rl.models.tiny import FLOOR_RECORD
from composer_rl.stages.sft import SFTStage


def train_sft(run_dir: Path, *overrides: str) -> tuple[int, dict[str, Any]]:
    from composer_rl.cli import main

    code = main(
        [
            "stage=sft",
            "tracker=console",
            "tracker.trackers.console.mode=off",
            f"hydra.run.dir={run_dir}",
            *overrides,
        ]
    )
    return code, json.loads((run_dir / "result.json").read_text())


SMALL = ("max_steps=3", "stage.num_tasks=60", "stage.batch_size=4", "stage.recovery_batch_size=4")


def test_the_generator_trains_from_fresh_weights_and_repeats_itself(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    code, first = train_sft(tmp_path / "a", *SMALL)
    assert code == 0
    assert first["metrics"]["train/steps"] == 3
    _, again = train_sft(tmp_path / "b", *SMALL)
    assert again["metrics"]["sft/loss"] == pytest.approx(first["metrics"]["sft/loss"], abs=1e-6)
    _, other = train_sft(tmp_path / "c", *SMALL, "seed=1")
    assert other["metrics"]["sft/loss"] != first["metrics"]["sft/loss"]
    rows = [json.loads(line) for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert {"loss", "loss/first_calls", "loss/recoveries", "learning_rate", "tokens_per_s"} <= rows[0].keys()
    assert rows[0]["loss"] > 5.5, "a fresh model knows nothing"
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "a" / "checkpoint")
    assert model.config.vocab_size >= len(AutoTokenizer.from_pretrained(tmp_path / "a" / "checkpoint"))


def test_a_corpus_of_ones_own_trains_the_model_as_it_is(tmp_path: Path, model_folder: Callable[[str], Path]) -> None:
    path = tmp_path / "own.jsonl"
    record = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b c"}]}
    path.write_text((json.dumps(record) + "\n") * 8)
    code, result = train_sft(
        tmp_path / "run",
        "stage.source=corpus",
        f"stage.path={path}",
        "model=hf",
        f"model.name={model_folder('llama')}",
        "max_steps=60",
        "stage.batch_size=4",
    )
    assert code == 0
    assert result["metrics"]["sft/loss"] < 4.0, "a uniform guess over the 262 tokens costs 5.57 nats"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("stage.source=corpus",), "source=corpus needs path"),
        (("stage.source=corpus", "stage.path=nowhere.jsonl"), "stage.path=nowhere.jsonl is no file"),
        (("stage.path=x.jsonl",), "path is only read with source=corpus"),
        (("stage.batch_size=0",), "batch_size must be at least 1, got 0"),
        (("stage.matrix_lr=0",), "matrix_lr must be above 0, got 0"),
        (("stage.clean_share=2",), r"clean_share must be in [0, 1], got 2"),
        (("stage.noise.tool=7",), "tool must be in [0, 1], got 7"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    overrides: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from composer_rl.cli import main

    code = main(["stage=sft", f"hydra.run.dir={tmp_path / 'run'}", *overrides])
    assert code == 2
    assert message in capsys.readouterr().err


def test_settings_of_the_shipped_floor_are_the_defaults() -> None:
    import dataclasses

    record = json.loads(FLOOR_RECORD.read_text())
    stage = SFTStage()
    for name, value in record["stage"].items():
        if name == "_target_":
            continue
        default = getattr(stage, name)
        if dataclasses.is_dataclass(default):
            value = {key: entry for key, entry in value.items() if key != "_target_"}
            assert {key: getattr(default, key) for key in value} == value
        else:
            assert default == value, name


@pytest.mark.slow
def test_the_shipped_floor_is_reproduced(tmp_path: Path) -> None:
    import torch

    record = json.loads(FLOOR_RECORD.read_text())
    code, result = train_sft(tmp_path / "run", f"seed={record['seed']}")
    assert code == 0
    same_cpu = record["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    # Other vector instructions round otherwise, and 900 steps carry that to the third digit (0.006 was measured).
    assert result["metrics"]["sft/loss"] == pytest.approx(record["loss"], abs=1e-3 if same_cpu else 3e-2)
