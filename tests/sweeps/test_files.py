"""Every sweep file: its jobs compose and fit together, its header says what for, its baseline is one of its arms."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from composer_rl.cli import main
from composer_rl.sweeps.runner import SweepRunner

FOLDER = Path(__file__).parents[2] / "multirun_sweeps"
NUM_JOBS = {"po_presets": 45, "seeds": 8, "learning_rate": 20, "kl": 15, "updates_per_rollout": 30}


def test_every_file_is_known_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(NUM_JOBS)


@pytest.mark.parametrize("name", sorted(NUM_JOBS))
def test_its_jobs_compose(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    def record(self: SweepRunner, starts: Sequence[Any]) -> None:
        started.extend(starts)

    monkeypatch.setattr(SweepRunner, "run", record)
    monkeypatch.setattr("composer_rl.launch._write_sweep_report", lambda folder: None)
    monkeypatch.chdir(tmp_path)
    main(["-m", f"multirun_sweeps={name}"])
    plan = json.loads((tmp_path / "multirun" / name / "sweep.json").read_text())
    assert len(started) == len(plan["jobs"]) == NUM_JOBS[name]
    assert plan["question"].endswith("?")
    arms = {json.dumps(job["arm"], sort_keys=True) for job in plan["jobs"]}
    if plan["baseline"] is not None:
        assert json.dumps(plan["baseline"], sort_keys=True) in arms
    assert all(start.total_steps == 50 for start in started)


@pytest.mark.parametrize("name", sorted(NUM_JOBS))
def test_its_header_says_what_for(name: str) -> None:
    text = (FOLDER / f"{name}.yaml").read_text()
    for word in ("# Question: ", "# Cost: ", "# An answer: "):
        assert word in text
    assert f" {NUM_JOBS[name]} jobs" in text
