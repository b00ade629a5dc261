"""Optuna chooses settings by the scores of jobs, goes on where it was, and is started from a sweep file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hydra.core.utils import JobReturn, JobStatus

from composer_rl.errors import ConfigError
from composer_rl.sweeps.search import SearchSettings, search

SPACE = {"x": {"low": -2.0, "high": 2.0}}


class Launcher:
    """Scores a job by its own settings: (x - 1)^2, smaller is better; jobs of seed 3 fail."""

    def __init__(self, *, die_at: int | None = None) -> None:
        self.rows: list[list[str]] = []
        self._die_at = die_at

    def launch(self, rows: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        returns = []
        for row in rows:
            self.rows.append(list(row))
            if self._die_at is not None and len(self.rows) > self._die_at:
                raise KeyboardInterrupt
            values = dict(line.split("=") for line in row)
            job = JobReturn(overrides=list(row))
            job.status, job.return_value = JobStatus.COMPLETED, (float(values["x"]) - 1.0) ** 2
            if values.get("seed") == "3":
                job.status, job.return_value = JobStatus.FAILED, RuntimeError("no")
            returns.append(job)
        return returns


def settings(**changes: Any) -> SearchSettings:
    return SearchSettings.of({"params": SPACE, "direction": "minimize", "n_trials": 25, **changes})


def test_it_finds_the_minimum_and_repeats_itself(tmp_path: Path) -> None:
    first, second = Launcher(), Launcher()
    best = search(first, str(tmp_path / "a"), ["po=dapo"], settings())
    assert best["value"] < 0.05
    assert len(first.rows) == 25
    assert first.rows[0][0] == "po=dapo"
    search(second, str(tmp_path / "b"), ["po=dapo"], settings())
    assert second.rows == first.rows


def test_a_trial_runs_over_all_seeds(tmp_path: Path) -> None:
    launcher = Launcher()
    search(launcher, str(tmp_path), [], settings(seeds=[1, 2], n_trials=2))
    assert [row[1] for row in launcher.rows] == ["seed=1", "seed=2"] * 2
    assert launcher.rows[0][0] == launcher.rows[1][0]


def test_a_failed_job_fails_its_trial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert search(Launcher(), str(tmp_path), [], settings(seeds=[1, 3], n_trials=2)) == {}
    assert capsys.readouterr().out.count("a job of it failed") == 2


def test_an_interrupted_search_asks_for_the_same_settings_again(tmp_path: Path) -> None:
    killed, again = Launcher(die_at=3), Launcher()
    with pytest.raises(KeyboardInterrupt):
        search(killed, str(tmp_path), [], settings(n_trials=6))
    search(again, str(tmp_path), [], settings(n_trials=6))
    assert again.rows[0] == killed.rows[3], "the job that was cut off comes first, and finds its folder"
    assert len(again.rows) == 3
    assert search(Launcher(), str(tmp_path), [], settings(n_trials=6))["value"] >= 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": {}}, r"hydra.sweeper.params names nothing to search"),
        ({"params": {"x": {"low": 3}}}, r"hydra.sweeper.params.x: needs choices, or low below high"),
        ({"n_jobs": 0}, r"hydra.sweeper.n_jobs must be at least 1, got 0"),
        ({"direction": "up"}, r"hydra.sweeper.direction must be maximize or minimize, got 'up'"),
    ],
)
def test_what_cannot_be_searched_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(**change)
