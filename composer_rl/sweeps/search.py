"""Optuna's tree-structured Parzen estimator over the jobs of a sweep, resumable from a journal in the sweep's folder.

A trial is one setting of the searched knobs, run over all seeds and scored by the mean of the objective. Trials that
were asked for and not finished (a kill) are asked for again with the same settings, so that their jobs are found
finished or resumed. A trial with a failed job counts as failed and teaches the search nothing.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from composer_rl.errors import ConfigError, MissingExtraError
from composer_rl.sweeps.space import Draw, override, seed_rows

JOURNAL = "optuna.journal"


@dataclass(kw_only=True)
class SearchSettings:
    """Settings of `hydra/sweeper=optuna`."""

    params: dict[str, Draw]
    seeds: list[int] = field(default_factory=list)
    n_trials: int = 20
    n_jobs: int = 1
    random_seed: int = 0
    direction: Literal["maximize", "minimize"] = "maximize"

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> SearchSettings:
        """From the sweeper's configuration. Raises ConfigError for what cannot be searched."""
        given = {item.name: settings[item.name] for item in fields(cls) if item.name in settings}
        draws: dict[str, Draw] = {}
        for key, value in dict(given.pop("params", None) or {}).items():
            try:
                draws[str(key)] = Draw(**value)
            except (TypeError, ValueError) as error:
                raise ConfigError(f"hydra.sweeper.params.{key}: {error}") from error
        if not draws:
            raise ConfigError("hydra.sweeper.params names nothing to search; give setting: {low: ..., high: ...}")
        made = cls(params=draws, **{**given, "seeds": list(given.get("seeds") or [])})
        for name in ("n_trials", "n_jobs"):
            if getattr(made, name) < 1:
                raise ConfigError(f"hydra.sweeper.{name} must be at least 1, got {getattr(made, name)}")
        if made.direction not in ("maximize", "minimize"):
            raise ConfigError(f"hydra.sweeper.direction must be maximize or minimize, got {made.direction!r}")
        return made


def search(launcher: Any, sweep_dir: str, arguments: Sequence[str], settings: SearchSettings) -> dict[str, Any]:
    """Run trials until `n_trials` are finished; returns the best settings and their score ({} without any)."""
    study = _study(Path(sweep_dir).absolute(), settings)
    while True:
        left = settings.n_trials - _num_finished(study)
        if left <= 0:
            break
        batch = [_ask(study, settings) for _ in range(min(settings.n_jobs, left))]
        rows = [
            [*arguments, *(override(key, value) for key, value in trial.params.items()), *seed]
            for trial in batch
            for seed in seed_rows(settings.seeds)
        ]
        returns = launcher.launch(rows, initial_job_idx=0)
        size = len(rows) // len(batch)
        for number, trial in enumerate(batch):
            _tell(study, trial, [_score(job) for job in returns[number * size : (number + 1) * size]])
    return _best(study)


def _study(sweep_dir: Path, settings: SearchSettings) -> Any:
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ModuleNotFoundError as error:
        raise MissingExtraError("hydra/sweeper=optuna", package="optuna", extra="sweep") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    os.makedirs(sweep_dir, exist_ok=True)
    study = optuna.create_study(
        study_name=sweep_dir.name,
        storage=JournalStorage(JournalFileBackend(str(sweep_dir / JOURNAL))),
        sampler=optuna.samplers.TPESampler(seed=settings.random_seed),
        direction=settings.direction,
        load_if_exists=True,
    )
    for trial in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
        study.enqueue_trial(trial.params)
        study.tell(trial.number, state=optuna.trial.TrialState.PRUNED)
    return study


def _num_finished(study: Any) -> int:
    """Trials that were told a score or a failure; a trial that a kill cut off is pruned and asked for again."""
    import optuna

    states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.FAIL)
    return len(study.get_trials(states=states))


def _ask(study: Any, settings: SearchSettings) -> Any:
    import optuna

    distributions: dict[str, Any] = {}
    for key, draw in settings.params.items():
        if draw.choices:
            distributions[key] = optuna.distributions.CategoricalDistribution(list(draw.choices))
            continue
        assert draw.low is not None
        assert draw.high is not None
        if draw.integer:
            low, high = math.ceil(draw.low), math.floor(draw.high)
            distributions[key] = optuna.distributions.IntDistribution(low, high, log=draw.log)
        else:
            distributions[key] = optuna.distributions.FloatDistribution(draw.low, draw.high, log=draw.log)
    return study.ask(distributions)


def _score(job: Any) -> float | None:
    from hydra.core.utils import JobStatus

    if job.status != JobStatus.COMPLETED or job.return_value is None:
        return None
    return float(job.return_value)


def _tell(study: Any, trial: Any, scores: Sequence[float | None]) -> None:
    import optuna

    known = [score for score in scores if score is not None]
    if len(known) < len(scores):
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        sys.stdout.write(f"trial {trial.number}: a job of it failed\n")
        return
    mean = sum(known) / len(known)
    study.tell(trial, mean)
    settings = " ".join(f"{key}={value}" for key, value in trial.params.items())
    sys.stdout.write(f"trial {trial.number}: {mean:.4f} with {settings}\n")


def _best(study: Any) -> dict[str, Any]:
    if not any(trial.value is not None for trial in study.trials):
        return {}
    best = study.best_trial
    settings = " ".join(f"{key}={value}" for key, value in best.params.items())
    sys.stdout.write(f"best of {len(study.trials)} trials: {best.value:.4f} with {settings}\n")
    return {"params": best.params, "value": best.value}
