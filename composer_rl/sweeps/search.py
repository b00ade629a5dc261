"""Optuna's tree-structured Parzen estimator over the jobs of a sweep, resumable (`study.py`).

A trial is one setting of the searched knobs, run over all seeds and scored by the mean of the objective. One with a
failed job counts as failed; one with a job that was cut off stays open, and the same command goes on with it.

Only the launcher runs jobs side by side: as many trials are asked for at once as it takes to keep it busy, before any
of them is told (case B77).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_rl.config.rundir import RunDirectory
from composer_rl.runtime import available_cores
from composer_rl.sweeps.call import JobUnfinishedError
from composer_rl.sweeps.returned import folder_of_return, has_failed
from composer_rl.sweeps.runner import read_record
from composer_rl.sweeps.search_space import SearchSettings, setting
from composer_rl.sweeps.space import seed_rows
from composer_rl.sweeps.study import FOLDER, SearchStudy


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What the launcher's settings mean for a search."""

    num_parallel: int = 1
    """Jobs that run at once."""
    fail_fast: bool = False
    retry_failed: bool = False

    @classmethod
    def of(cls, launcher: Mapping[str, Any]) -> Pace:
        """From the configuration of any launcher; joblib's -1 is every core."""
        asked = launcher.get("n_jobs")
        asked = 1 if not isinstance(asked, int) else available_cores() if asked < 0 else asked
        return cls(
            num_parallel=max(1, asked),
            fail_fast=launcher.get("fail_fast") is True,
            retry_failed=launcher.get("retry_failed") is True,
        )


def search(
    launcher: Any,
    sweep_dir: str,
    shared: Sequence[str],
    settings: SearchSettings,
    *,
    pace: Pace | None = None,
    recipe: str = "",
) -> dict[str, Any]:
    """Run trials until `n_trials` are finished; returns the best settings and their score ({} without any).

    Args:
        launcher: Runs batches of jobs.
        sweep_dir: Folder of the sweep.
        shared: Overrides of every job.
        settings: What is searched.
        pace: By default one job at a time.
        recipe: Hash of the configuration under the searched settings.

    Raises RunDirectoryError when another process runs this search, MissingExtraError without optuna.
    """
    settings.check()
    pace = pace or Pace()
    seeds = seed_rows(settings.seeds)
    folder = Path(sweep_dir).absolute() / FOLDER
    with RunDirectory.hold(folder):
        study = SearchStudy(folder, settings, recipe=recipe)
        if pace.retry_failed:
            study.retry_failed()
        while batch := study.next_trials(math.ceil(pace.num_parallel / len(seeds))):
            returns = _launch(launcher, batch, shared, settings)
            ended = [
                _tell(study, trial, jobs, settings)
                for trial, jobs in zip(batch, _parts(returns, len(seeds)), strict=True)
            ]
            if not all(ended) or (pace.fail_fast and any(has_failed(job) for job in returns)):
                break
        return _best(study, settings)


def _launch(launcher: Any, batch: Sequence[Any], shared: Sequence[str], settings: SearchSettings) -> list[Any]:
    """Run the jobs of the trials, numbered by trial and seed whatever was run before them."""
    seeds = seed_rows(settings.seeds)
    returns: list[Any] = []
    run: list[Any] = []
    for index, trial in enumerate(batch):
        run.append(trial)
        if index + 1 < len(batch) and batch[index + 1].number == trial.number + 1:
            continue
        rows = [[*shared, *_overrides(trial, settings), *seed] for trial in run for seed in seeds]
        returns += launcher.launch(rows, initial_job_idx=run[0].number * len(seeds))
        run = []
    return returns


def _overrides(trial: Any, settings: SearchSettings) -> list[str]:
    return [setting(key, draw, trial.params[key]) for key, draw in settings.params.items()]


def _parts(returns: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [returns[start : start + size] for start in range(0, len(returns), size)]


def _tell(study: SearchStudy, trial: Any, jobs: Sequence[Any], settings: SearchSettings) -> bool:
    """Record how a trial went and say so; False leaves it open."""
    what = " ".join(line.lstrip("+") for line in _overrides(trial, settings))
    if any(isinstance(job._return_value, JobUnfinishedError) for job in jobs):
        sys.stdout.write(f"trial {trial.number} is not finished: {what}\n")
        return False
    scores = [_score(job, settings.objective) for job in jobs]
    known = [score for score in scores if score is not None]
    if len(known) < len(scores):
        why = "a job of it failed" if any(map(has_failed, jobs)) else f"a job of it has no {settings.objective}"
        study.tell(trial.number, None)
        sys.stdout.write(f"trial {trial.number}: {why}: {what}\n")
        return True
    mean = sum(known) / len(known)
    study.tell(trial.number, mean)
    sys.stdout.write(f"trial {trial.number}: {mean:.4f} with {what}\n")
    return True


def _score(job: Any, objective: str) -> float | None:
    """The objective of a job that ended well: by its record, else by what the launcher handed back."""
    if has_failed(job):
        return None
    folder = folder_of_return(job)
    record = read_record(folder) if folder is not None else {}
    value = (record.get("metrics") or {}).get(objective) if record else job.return_value
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _best(study: SearchStudy, settings: SearchSettings) -> dict[str, Any]:
    best = study.best()
    if best is None:
        return {}
    what = " ".join(line.lstrip("+") for line in _overrides(best, settings))
    sys.stdout.write(f"best of {study.num_scored} trials: {best.value:.4f} with {what}\n")
    return {"params": best.params, "value": best.value}
