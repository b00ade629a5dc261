"""What `hydra/launcher=processes` does with a batch of jobs: plan, run, report."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer_rl.config.rundir import RunDirectory
from composer_rl.errors import ConfigError
from composer_rl.run import Outcome, prepare_run
from composer_rl.sweeps.call import JobFailedError, JobUnfinishedError, current_call
from composer_rl.sweeps.design import check_names
from composer_rl.sweeps.environment import slots
from composer_rl.sweeps.manifest import JobEntry, Manifest, earlier_entries, earlier_manifest
from composer_rl.sweeps.plan import Composed, enter, is_held, quoted, to_start
from composer_rl.sweeps.runner import GRACE_S, Start, SweepRunner, read_record
from composer_rl.sweeps.space import text_of
from composer_rl.sweeps.table import SweepTable

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn

OBJECTIVE = "heldout/solve_rate_after"
"""Final figure that a sweep is about where its file names none."""

_POLL_S = 0.2
_LOG = logging.getLogger(__name__)


@dataclass(kw_only=True)
class ProcessSettings:
    """Settings of the launcher."""

    n_jobs: int = 1
    fail_fast: bool = False
    retry_failed: bool = False
    devices: Sequence[str | int] | None = None

    def __post_init__(self) -> None:
        if type(self.n_jobs) is not int or self.n_jobs < 1:
            raise ConfigError(f"hydra.launcher.n_jobs must be a whole number, at least 1, got {self.n_jobs!r}")
        for name in ("fail_fast", "retry_failed"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"hydra.launcher.{name} must be true or false, got {getattr(self, name)!r}")
        if self.devices is not None and (isinstance(self.devices, str) or not isinstance(self.devices, Sequence)):
            raise ConfigError(f"hydra.launcher.devices must be a list such as [0,1], or null, got {self.devices!r}")

    @classmethod
    def of(cls, launcher: Mapping[str, Any]) -> ProcessSettings:
        """From the launcher's configuration. Raises ConfigError."""
        known = [item.name for item in fields(cls)]
        check_names(launcher, ("_target_", *known), "hydra.launcher")
        return cls(**{name: launcher[name] for name in known if name in launcher})


def launch_jobs(loader: Any, config: Any, rows: Sequence[Sequence[str]], settings: ProcessSettings) -> list[JobReturn]:
    """Run the jobs with these overrides; jobs that have ended before are not run again.

    Returns one JobReturn a job, whose value is the objective. Raises ConfigError for a job that is not configured
    rightly and RunDirectoryError when another process runs this sweep, in both cases before any job starts.
    """
    sweep_dir = Path(str(config.hydra.sweep.dir)).absolute()
    jobs = [compose(loader, config, row) for row in rows]
    with RunDirectory.hold(sweep_dir):
        earlier = earlier_manifest(sweep_dir)
        call = current_call()
        if call.manifest is None:
            call.manifest = _new_manifest(sweep_dir.name, config, earlier)
            if call.keeps_earlier_jobs:
                call.manifest.jobs.extend(earlier_entries(earlier))
        manifest = call.manifest
        entries = enter(manifest, jobs, sweep_dir=sweep_dir, earlier=earlier)
        words = [*call.flags, *hydra_words(config)]
        planned = {entry.num: (entry, job) for entry, job in zip(entries, jobs, strict=True)}

        def starts_of(numbers: Iterable[int]) -> list[Start]:
            found = (
                to_start(*planned[number], sweep_dir=sweep_dir, flags=words, retry_failed=settings.retry_failed)
                for number in numbers
            )
            return [start for start in found if start is not None]

        starts = starts_of(planned)
        manifest.write(sweep_dir)
        num_ended = len(planned) - len(starts)
        if num_ended:
            sys.stdout.write(f"{num_ended} of {len(planned)} jobs of {sweep_dir} have ended or run elsewhere\n")
        table = SweepTable(manifest, sweep_dir, num_parallel=settings.n_jobs)
        runner = SweepRunner(
            manifest,
            sweep_dir,
            slots=slots(settings.n_jobs, None if settings.devices is None else list(map(str, settings.devices))),
            fail_fast=settings.fail_fast,
            table=table,
        )
        try:
            runner.run(starts)
            if not runner.stopping and (left := wait_for_leftovers(entries, sweep_dir)):
                runner.run(starts_of(left))
        except KeyboardInterrupt:
            sys.stdout.write(f"interrupted; go on with the same command{_name_of(config, sweep_dir)}\n")
            raise
        finally:
            manifest.write(sweep_dir)
            objective = manifest.objective
            outcomes = {entry.num: outcome_of(entry, sweep_dir) for entry in entries}
            call.outcomes.extend(outcomes.values())
    return [_job_return(row, outcomes[entry.num], objective) for row, entry in zip(rows, entries, strict=True)]


def wait_for_leftovers(entries: Sequence[JobEntry], sweep_dir: Path, *, most_s: float = GRACE_S) -> list[int]:
    """Wait for processes that hold jobs of this sweep: after a kill they still record how far they came.

    Returns the numbers of jobs that were held and are free now. One that is held for longer than `most_s` seconds is
    somebody else's, and stays as it is.
    """
    held = {entry.num: sweep_dir / entry.dir for entry in entries if is_held(sweep_dir / entry.dir)}
    if not held:
        return []
    names = ", ".join(folder.name for folder in held.values())
    sys.stdout.write(f"waiting at most {most_s:.0f} s for {names}, which another process still holds\n")
    sys.stdout.flush()
    deadline = time.monotonic() + most_s
    while time.monotonic() < deadline and any(map(is_held, held.values())):
        time.sleep(_POLL_S)
    return [number for number, folder in held.items() if not is_held(folder)]


def _name_of(config: Any, sweep_dir: Path) -> str:
    """What the same command lacks to find this sweep again."""
    named = config.get("run_name") or config.hydra.runtime.choices.get("multirun_sweeps")
    placed = any(str(word).startswith("hydra.sweep.dir=") for word in config.hydra.overrides.hydra)
    return "" if named or placed else f" and hydra.sweep.dir={quoted(sweep_dir)}"


def hydra_words(config: Any) -> list[str]:
    """Overrides of Hydra's own settings that jobs need too (a search path); not those that make or place the sweep."""
    about_the_sweep = ("hydra.sweep", "hydra.launcher", "hydra/launcher", "hydra/sweeper", "hydra.run", "hydra.mode")
    words = [str(word) for word in config.hydra.overrides.hydra]
    return [word for word in words if not word.lstrip("+~").startswith(about_the_sweep)]


def compose(loader: Any, config: Any, row: Sequence[str]) -> Composed:
    """One job's configuration, checked."""
    from composer_rl.preflight import known_groups, task_config

    # Whether a job goes on is decided by what its folder holds.
    row = [line for line in row if line.lstrip("+").partition("=")[0] != "resume"]
    composed = loader.load_sweep_config(config, row)
    prepared = prepare_run(task_config(composed, Path.cwd()), groups=known_groups())
    return Composed(overrides=tuple(row), config=prepared.config)


def _new_manifest(name: str, config: Any, earlier: dict[str, Any]) -> Manifest:
    sweeper = config.hydra.sweeper
    baseline = sweeper.get("baseline")
    manifest = Manifest(
        name=name,
        objective=sweeper.get("objective") or OBJECTIVE,
        direction=sweeper.get("direction") or "maximize",
        question=sweeper.get("question"),
        baseline=None if baseline is None else {str(key): text_of(value) for key, value in baseline.items()},
        command=current_call().command,
    )
    if isinstance(earlier.get("created"), str):
        manifest.created = earlier["created"]
    return manifest


def outcome_of(entry: JobEntry, sweep_dir: Path) -> Outcome:
    """How a job ended, as the command line counts it."""
    folder = sweep_dir / entry.dir
    record = read_record(folder)
    figures = record.get("metrics") or {}
    status: Any = entry.status if entry.status not in ("pending", "running") else "interrupted"
    return Outcome(
        status=status,
        exit_code=0 if status == "succeeded" else int(record.get("exit_code") or 1),
        run_dir=folder,
        metrics={name: value for name, value in figures.items() if value is not None},
    )


def _job_return(row: Sequence[str], outcome: Outcome, objective: str) -> JobReturn:
    from hydra.core.utils import JobReturn, JobStatus

    job = JobReturn(overrides=list(row), working_dir=str(outcome.run_dir))
    if outcome.status in ("succeeded", "stopped"):
        job.status, job.return_value = JobStatus.COMPLETED, outcome.metrics.get(objective)
    else:
        kind = JobFailedError if outcome.status == "failed" else JobUnfinishedError
        job.status, job.return_value = JobStatus.FAILED, kind(f"see {outcome.run_dir}/result.json")
    return job
