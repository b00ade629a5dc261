"""Optuna chooses settings by the scores of jobs, goes on where it was, and is started from a sweep file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hydra.core.utils import JobReturn, JobStatus

from composer_rl.config.rundir import RunDirectory
from composer_rl.errors import ConfigError, MissingExtraError, RunDirectoryError
from composer_rl.sweeps.call import JobUnfinishedError
from composer_rl.sweeps.search import Pace, search
from composer_rl.sweeps.search_space import SearchSettings, corner_rows, with_command_line
from composer_rl.sweeps.space import Draw
from composer_rl.sweeps.study import FOLDER, JOURNAL

SPACE = {"x": {"low": -2.0, "high": 2.0}}


class Launcher:
    """Scores a job by its own settings: (x - 1)^2, smaller is better; jobs of seed 3 fail."""

    def __init__(self, *, die_at: int | None = None, mends: bool = False) -> None:
        self.rows: list[list[str]] = []
        self._die_at = die_at
        self._mends = mends

    def launch(self, rows: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        returns = []
        for row in rows:
            self.rows.append(list(row))
            if self._die_at is not None and len(self.rows) > self._die_at:
                raise KeyboardInterrupt
            values = dict(line.split("=", 1) for line in row)
            job = JobReturn(overrides=list(row))
            job.status, job.return_value = JobStatus.COMPLETED, (float(values["x"]) - 1.0) ** 2
            if values.get("seed") == "3" and not self._mends:
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


def test_a_search_that_was_cut_off_goes_on_like_one_that_was_not(tmp_path: Path) -> None:
    """The same draws, none of them twice, and the same history behind each of them."""
    whole, killed, again = Launcher(), Launcher(die_at=4), Launcher()
    search(whole, str(tmp_path / "whole"), [], settings(n_trials=14))
    with pytest.raises(KeyboardInterrupt):
        search(killed, str(tmp_path / "cut"), [], settings(n_trials=14))
    search(again, str(tmp_path / "cut"), [], settings(n_trials=14))
    assert killed.rows[:4] + again.rows == whole.rows
    assert len({tuple(row) for row in whole.rows}) == 14


def test_another_configuration_or_range_is_another_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    searches = [
        (settings(n_trials=2), "a"),
        (settings(n_trials=2), "b"),
        (settings(n_trials=2, params={"x": {"choices": [1.0, 2.0]}}), "a"),
        (settings(n_trials=2, params={"x": {"choices": [1.0, 2.0, 3.0]}}), "a"),
        (settings(n_trials=2, direction="maximize"), "a"),
    ]
    for wanted, recipe in searches:
        launcher = Launcher()
        search(launcher, str(tmp_path), [], wanted, recipe=recipe)
        assert len(launcher.rows) == 2
    assert capsys.readouterr().out.count("a new search: the earlier one") == 4
    launcher = Launcher()
    search(launcher, str(tmp_path), [], settings(n_trials=3), recipe="a")
    assert len(launcher.rows) == 1, "the first one goes on"


def test_only_the_launcher_runs_jobs_side_by_side(tmp_path: Path) -> None:
    """B77: batches keep `n_jobs` of the launcher busy, seeds included; joblib's -1 is every core."""
    for seeds, sizes in (([], [3, 3, 1]), ([1, 2], [4, 4, 4, 2]), ([1, 2, 4, 5, 6], [5] * 7)):
        launcher = Batches()
        folder = tmp_path / str(len(seeds))
        search(launcher, str(folder), [], settings(n_trials=7, seeds=seeds), pace=Pace(num_parallel=3))
        assert launcher.sizes == sizes
    assert Pace.of({"n_jobs": -1}).num_parallel >= 1
    assert Pace.of({"n_jobs": 4, "fail_fast": True}) == Pace(num_parallel=4, fail_fast=True)
    assert Pace.of({}) == Pace()


class Batches(Launcher):
    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.first: list[int] = []

    def launch(self, rows: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        self.sizes.append(len(rows))
        self.first.append(initial_job_idx)
        return super().launch(rows, initial_job_idx)


def test_jobs_keep_their_numbers_when_a_search_goes_on(tmp_path: Path) -> None:
    """Hydra's own launchers find a folder by the number."""
    with pytest.raises(KeyboardInterrupt):
        search(Launcher(die_at=2), str(tmp_path), [], settings(n_trials=4, seeds=[1, 2]))
    launcher = Batches()
    search(launcher, str(tmp_path), [], settings(n_trials=4, seeds=[1, 2]))
    assert launcher.first == [2, 4, 6]


def test_fail_fast_ends_the_search(tmp_path: Path) -> None:
    launcher = Launcher()
    search(launcher, str(tmp_path), [], settings(seeds=[3], n_trials=5), pace=Pace(fail_fast=True))
    assert len(launcher.rows) == 1


def test_failed_trials_are_retried_by_flag(tmp_path: Path) -> None:
    first = Launcher()
    search(first, str(tmp_path), [], settings(seeds=[3], n_trials=2))
    same = Launcher()
    search(same, str(tmp_path), [], settings(seeds=[3], n_trials=2))
    assert same.rows == []
    again = Launcher(mends=True)
    best = search(again, str(tmp_path), [], settings(seeds=[3], n_trials=2), pace=Pace(retry_failed=True))
    assert again.rows == first.rows
    assert best["value"] >= 0
    last = Launcher()
    search(last, str(tmp_path), [], settings(seeds=[3], n_trials=2), pace=Pace(retry_failed=True))
    assert last.rows == []


def test_a_trial_that_was_not_finished_stays_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class CutOff(Launcher):
        def launch(self, rows: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
            (job,) = super().launch(rows, initial_job_idx)
            job.status, job.return_value = JobStatus.FAILED, JobUnfinishedError("no")
            return [job]

    cut, again = CutOff(), Launcher()
    search(cut, str(tmp_path), [], settings(n_trials=2))
    assert "trial 0 is not finished: x=" in capsys.readouterr().out
    search(again, str(tmp_path), [], settings(n_trials=2))
    assert again.rows[0] == cut.rows[0]
    assert len(again.rows) == 2


def test_a_score_that_is_no_number_fails_its_trial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class NoNumber(Launcher):
        def launch(self, rows: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
            returns = super().launch(rows, initial_job_idx)
            for job in returns:
                job.return_value = float("nan")
            return returns

    assert search(NoNumber(), str(tmp_path), [], settings(n_trials=1)) == {}
    assert "a job of it has no heldout/solve_rate_after" in capsys.readouterr().out


def test_a_journal_that_was_cut_in_a_line_is_read(tmp_path: Path) -> None:
    search(Launcher(), str(tmp_path), [], settings(n_trials=3))
    journal = tmp_path / FOLDER / JOURNAL
    journal.write_bytes(journal.read_bytes()[:-20])
    again = Launcher()
    search(again, str(tmp_path), [], settings(n_trials=4))
    assert len(again.rows) == 2, "the last trial was not told, so it is asked for again"
    search(Launcher(), str(tmp_path), [], settings(n_trials=5))


def test_one_process_searches(tmp_path: Path) -> None:
    with RunDirectory.hold(tmp_path / FOLDER), pytest.raises(RunDirectoryError, match="is in use by another run"):
        search(Launcher(), str(tmp_path), [], settings(n_trials=1))


def test_without_optuna_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'composer-rl\[sweep\]'"):
        search(Launcher(), str(tmp_path), [], settings(n_trials=1))


def test_values_are_written_as_one_would(tmp_path: Path) -> None:
    launcher = Launcher()
    space = {
        "x": {"low": 0.0, "high": 1.0},
        "po.epsilon": {"low": 1e-5, "high": 1e-3, "log": True},
        "n": {"low": 2, "high": 4, "integer": True},
        "tags": {"choices": [["a", "b"], ["c, d"]]},
    }
    search(launcher, str(tmp_path), [], settings(params=space, n_trials=3))
    for row in launcher.rows:
        x, epsilon, n, tags = row
        assert x == f"x={float(x[2:]):.4g}"
        assert epsilon.startswith("++po.epsilon=")
        assert n in ("n=2", "n=3", "n=4")
        assert tags in ("tags=[a,b]", "tags=['c, d']")


def test_the_command_line_searches_fixes_and_seeds() -> None:
    given = settings(params={"po.beta": {"low": 0.0, "high": 1.0}, "optim.lr": {"low": 0.1, "high": 0.2}}, seeds=[5])
    words = ["po=dapo,grpo", "po.beta=0.5", "optim.lr=tag(log, interval(1e-5, 1e-3))", "seed=0,1", "tags=[a],[b,'c d']"]
    found, shared = with_command_line(given, words)
    assert shared == ["po.beta=0.5"]
    assert list(found.seeds) == [0, 1]
    assert found.params == {
        "po": Draw(choices=["dapo", "grpo"]),
        "optim.lr": Draw(low=1e-5, high=1e-3, log=True),
        "tags": Draw(choices=[["a"], ["b", "c d"]]),
    }
    fixed, shared = with_command_line(given, ["seed=3"])
    assert (list(fixed.seeds), shared) == ([], ["seed=3"])
    with pytest.raises(ConfigError, match=r"hydra.sweeper.params names nothing to search"):
        with_command_line(settings(params={}), ["po=dapo"])


def test_the_corners_of_a_search() -> None:
    space = {"x": {"low": 0.0, "high": 1.0}, "po": {"choices": ["dapo", "grpo"]}}
    assert corner_rows(settings(params=space, seeds=[4, 5]), ["a=1"]) == [
        ["a=1", "x=0.0", "po=dapo", "seed=4"],
        ["a=1", "x=1.0", "po=dapo", "seed=4"],
        ["a=1", "x=0.0", "po=grpo", "seed=4"],
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": [1]}, r"hydra.sweeper.params must map settings to their ranges"),
        ({"params": {"x": {"low": 3}}}, r"hydra.sweeper.params.x: needs choices, or low below high"),
        ({"n_jobs": 2}, r"hydra.sweeper has no setting 'n_jobs'"),
        ({"n_trials": 0}, r"hydra.sweeper.n_trials must be at least 1, got 0"),
        ({"seeds": 3}, r"seeds must list whole numbers, got 3"),
        ({"direction": "up"}, r"hydra.sweeper.direction must be maximize or minimize, got 'up'"),
    ],
)
def test_what_cannot_be_searched_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(**change)
