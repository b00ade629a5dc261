"""`evaluate=hint_lift` from the command line, and its refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from composer_rl.stages.evaluations.hint_lift import CONDITIONS, HintLiftEvaluation
from composer_rl.types import ERROR_KINDS


def run(run_dir: Path, *overrides: str) -> dict[str, Any]:
    from composer_rl.cli import main

    code = main(
        [
            "stage=evaluate",
            "evaluate=hint_lift",
            "tracker=console",
            "tracker.trackers.console.mode=off",
            f"hydra.run.dir={run_dir}",
            *overrides,
        ]
    )
    record: dict[str, Any] = json.loads((run_dir / "result.json").read_text())
    assert code == 0, record["error"]
    return record


def test_the_frozen_sites_give_figures_overall_and_by_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = run(tmp_path / "run", "evaluate.num_sites=60")["metrics"]
    for condition in CONDITIONS:
        assert metrics[f"hint_lift/{condition}/num_sites"] == 60
        assert 0 <= metrics[f"hint_lift/{condition}/solve_rate"] <= 1
        assert metrics[f"hint_lift/{condition}/recovery_logprob"] < 0
    kinds = [kind for kind in ERROR_KINDS if f"hint_lift/{kind}/right/num_sites" in metrics]
    assert sum(metrics[f"hint_lift/{kind}/right/num_sites"] for kind in kinds) == 60
    assert "right - wrong" in capsys.readouterr().out


def test_the_composed_hint_is_the_right_one(tmp_path: Path) -> None:
    metrics = run(tmp_path / "run", "evaluate.num_sites=40", "hint=none")["metrics"]
    assert metrics["hint_lift/right/recovery_logprob"] == pytest.approx(metrics["hint_lift/none/recovery_logprob"])


def test_the_policys_own_errors_can_be_measured(tmp_path: Path) -> None:
    metrics = run(tmp_path / "run", "evaluate.sites=own", "evaluate.num_tasks=20")["metrics"]
    assert 1 <= metrics["hint_lift/none/num_sites"] <= 40


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_sites": 0}, "num_sites must be at least 1"),
        ({"num_tasks": -1}, "num_tasks must be at least 1"),
        ({"sites": "own", "path": "x"}, "path is only read with sites=frozen"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HintLiftEvaluation(**settings)
