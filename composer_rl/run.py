"""One run: configuration to objects, objects to stage, stage to result.json. The only place where families meet.

Everything is checked and built before the run folder is claimed, and the folder is claimed before torch is imported.
Several runs may follow each other in one process (a sweep on Hydra's basic launcher): seeds, threads, signal handlers
and the environment are set for each and put back after it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer_rl.config import rerun
from composer_rl.config.build import Prepared, prepare
from composer_rl.config.record import (
    ResultRecord,
    Status,
    git_state,
    now_text,
    package_versions,
    plain,
    platform_facts,
)
from composer_rl.config.redact import redact, redact_text
from composer_rl.config.reserve import is_disk_full, release_space, reserve_space
from composer_rl.config.resolvers import current_run_id
from composer_rl.config.rundir import RunDirectory, disk_errors_named
from composer_rl.config.settings import RunSettings
from composer_rl.errors import ComposerError, ConfigError, DiskFullError, EngagementError
from composer_rl.process import Interrupted, environment_restored, run_log, signals_raised

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from composer_rl.stages.base import Stage, StageResult
    from composer_rl.trackers.composite import TrackerSet

GROUP_BASES: dict[str, str] = {
    "curriculum": "composer_rl.curricula.base.Curriculum",
    "env": "composer_rl.envs.base.Environment",
    "evaluate": "composer_rl.stages.evaluations.base.Evaluation",
    "hint": "composer_rl.hints.base.HintGenerator",
    "loss": "composer_rl.losses.channel_sum.ChannelSum",
    "model": "composer_rl.models.base.ModelSource",
    "optim": "composer_rl.optim.base.OptimizerSettings",
    "po": "composer_rl.po.base.PolicyObjective",
    "reward": "composer_rl.rewards.base.RewardFunction",
    "rollout": "composer_rl.rollouts.settings.RolloutSettings",
    "runtime": "composer_rl.runtime.Runtime",
    "sandbox": "composer_rl.sandboxes.base.Sandbox",
    "stage": "composer_rl.stages.base.Stage",
    "tracker": "composer_rl.trackers.composite.TrackerSet",
}
"""What the component of a config group must be an instance of; a user's own class may stand in for any of them."""

CHECKED_GROUPS = ("env", "model")
"""Groups whose component looks at files of the user before a run starts."""

STOPPED_EXIT_CODE = 3
"""A guard or the stage itself ended the run early on purpose."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What Hydra decided about one run."""

    run_dir: Path
    overrides: list[str] = field(default_factory=list)
    choices: dict[str, str | None] = field(default_factory=dict)
    """Option by config group."""
    sweep: str | None = None
    """Sweep name, None outside a sweep."""
    job_num: int | None = None
    command: list[str] = field(default_factory=list)
    """The words that started this process."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended."""

    status: Status
    exit_code: int
    run_dir: Path
    error: BaseException | None = None
    metrics: dict[str, float] = field(default_factory=dict)


def prepare_run(config: DictConfig | Mapping[str, Any], *, groups: Sequence[str] = ()) -> Prepared:
    """Check and build all components of a run and let the stage check how they go together.

    Raises ConfigError for the first thing that is wrong. Imports nothing heavy and writes nothing.
    """
    prepared = prepare(config, bases=GROUP_BASES, groups=groups)
    hidden = rerun.redacted_keys(prepared.config)
    if hidden:
        raise ConfigError(f"{hidden[0]} was left out of result.json as a secret; give it on the command line")
    stage = prepared.components.get("stage")
    if stage is None:
        raise ConfigError("stage is missing: choose what to do, for example stage=rl")
    for group in stage.required_groups:
        if prepared.components.get(group) is None:
            raise ConfigError(f"this stage needs the config group {group}: choose an option, {group}=<option>")
    for group in CHECKED_GROUPS:
        if group in stage.required_groups:
            prepared.components[group].check()
    stage.check(prepared.components, max_steps=prepared.settings.max_steps)
    return prepared


def execute(prepared: Prepared, job: Job) -> Outcome:
    """Run a prepared job in its own folder; every way it can end is in result.json and in the outcome.

    Raises RunDirectoryError when the folder cannot be had, in which case nothing is written.
    """
    settings = prepared.settings
    with RunDirectory.claim(job.run_dir, resume=settings.resume) as directory:
        record = _open_record(prepared, job, directory.path)
        with disk_errors_named(directory.path):
            # The reserve first: without room for it, the record that a resumed run would replace stays as it is.
            reserve_space(directory.path)
            record.write(directory.path)
        with environment_restored(job.sweep is not None), signals_raised(), run_log(directory.path):
            return _Session(prepared=prepared, job=job, record=record, run_dir=directory.path).run()


def _open_record(prepared: Prepared, job: Job, run_dir: Path) -> ResultRecord:
    settings = prepared.settings
    earlier = rerun.load_record(run_dir) if settings.resume else {}
    revision, dirty = git_state()
    return ResultRecord(
        run_id=str(earlier.get("run_id") or current_run_id()),
        run_name=settings.run_name,
        seeds={"seed": settings.seed},
        stage=job.choices.get("stage"),
        sweep=job.sweep,
        job_num=job.job_num,
        started_at=now_text(),
        resumed=int(earlier.get("resumed", 0)) + 1 if settings.resume else 0,
        git_revision=revision,
        git_dirty=dirty,
        package_versions=package_versions(),
        platform=platform_facts(),
        command=list(job.command),
        overrides=list(job.overrides),
        choices=dict(job.choices),
        cwd=str(Path.cwd()),
        config=prepared.config,
    )


def refuse(config: Mapping[str, Any], job: Job, error: ConfigError) -> Outcome:
    """Record a job of a sweep that could not be prepared, so that it leaves a result.json like every other job."""
    with RunDirectory.claim(job.run_dir, resume=False) as directory:
        prepared = Prepared(settings=RunSettings(), components={}, config=dict(config))
        record = _open_record(prepared, job, directory.path)
        record.seeds = {}
        record.finish("failed", error.exit_code, error)
        with disk_errors_named(directory.path):
            record.write(directory.path)
    return Outcome(status="failed", exit_code=error.exit_code, run_dir=directory.path, error=error)


@dataclass(kw_only=True)
class _Session:
    """A claimed run from its first line to its last."""

    prepared: Prepared
    job: Job
    record: ResultRecord
    run_dir: Path
    _trackers: TrackerSet | None = None

    def run(self) -> Outcome:
        try:
            result = self._work()
        except BaseException as error:  # noqa: BLE001  Ctrl-C and SystemExit end a run too, and are recorded.
            return self._ended_badly(error)
        status: Status = "stopped" if result.stopped else "succeeded"
        return self._close(status, STOPPED_EXIT_CODE if result.stopped else 0, None)

    def _work(self) -> StageResult:
        from composer_rl.stages.base import RunContext

        components, settings = self.prepared.components, self.prepared.settings
        stage: Stage = components["stage"]
        runtime = components.get("runtime")
        if runtime is not None:
            runtime.prepare()
        trackers = self._start_trackers(stage)
        if runtime is not None and stage.needs_torch:
            trackers.phase("loading torch")
            runtime.apply(settings.seed)
        context = RunContext(
            run_dir=self.run_dir,
            components=components,
            trackers=trackers,
            seed=settings.seed,
            max_steps=settings.max_steps,
            resume=settings.resume,
            config=redact(self.prepared.config),
        )
        result = stage.run(context)
        self.record.metrics = plain(result.metrics)
        self.record.engagement = plain(result.engagement)
        self.record.warnings = list(result.warnings)
        for warning in result.warnings:
            _LOG.warning("%s", warning)
        if result.stopped:
            self.record.error = {"type": "Stopped", "message": result.stopped, "traceback": ""}
        if result.void:
            raise EngagementError(result.void)
        return result

    def _start_trackers(self, stage: Stage) -> TrackerSet:
        from composer_rl.trackers.base import RunInfo
        from composer_rl.trackers.composite import TrackerSet

        settings, record = self.prepared.settings, self.record
        trackers: TrackerSet = self.prepared.components.get("tracker") or TrackerSet()
        trackers.start(
            RunInfo(
                run_id=record.run_id,
                run_name=settings.run_name or f"{record.stage or 'run'}-{record.run_id}",
                run_dir=self.run_dir,
                config=redact(self.prepared.config),
                group=record.sweep,
                tags=tuple(settings.tags),
                total_steps=settings.max_steps or getattr(stage, "max_steps", None),
                resume_step=self._resume_step() if settings.resume else None,
            )
        )
        self._trackers = trackers
        return trackers

    def _resume_step(self) -> int:
        from composer_rl.trainer.checkpoint import newest_complete

        checkpoint = newest_complete(self.run_dir)
        return int(checkpoint.name.rpartition("-")[2]) if checkpoint is not None else 0

    def _ended_badly(self, error: BaseException) -> Outcome:
        if isinstance(error, KeyboardInterrupt):
            return self._close("interrupted", error.exit_code if isinstance(error, Interrupted) else 130, error)
        if is_disk_full(error, self.run_dir):
            full = DiskFullError(f"no space left on the disk of {self.run_dir}; {self._way_on()}")
            full.__cause__ = error
            error = full
        exit_code = error.exit_code if isinstance(error, ComposerError) else 1
        if not isinstance(error, ComposerError):
            _LOG.error("the run failed", exc_info=error)
        return self._close("failed", exit_code, error)

    def _way_on(self) -> str:
        """What a run on a full disk can still become."""
        from composer_rl.trainer.checkpoint import newest_complete

        if newest_complete(self.run_dir) is None:
            return "it has no complete checkpoint: free some and start again, or choose another hydra.run.dir"
        return f"free some, then go on with: resume=true hydra.run.dir={self.run_dir}"

    def _close(self, status: Status, exit_code: int, error: BaseException | None) -> Outcome:
        """Write the result first: whatever happens to the report and the trackers, it is there."""
        self.record.finish(status, exit_code, error)
        release_space(self.run_dir)
        path = self.record.write(self.run_dir)
        try:
            self._write_report()
        finally:
            if self._trackers is not None:
                self._trackers.finish(status, rerun.load_record(path))
        metrics = {name: value for name, value in self.record.metrics.items() if value is not None}
        return Outcome(status=status, exit_code=exit_code, run_dir=self.run_dir, error=error, metrics=metrics)

    def _write_report(self) -> None:
        """report.html for runs that logged steps; a report that cannot be made is said, not fatal."""
        figures = self.run_dir / "metrics.jsonl"
        if not figures.is_file() or figures.stat().st_size == 0:
            return
        if self._trackers is not None:
            self._trackers.phase("writing the report (Ctrl-C leaves it out)")
        try:
            from composer_rl.report.page import write_report

            write_report(self.run_dir)
        except Interrupted:
            raise
        except KeyboardInterrupt:  # How the run ended is written already: this one only spares the page.
            _LOG.warning("no report.html; it is written later with: composer-rl report %s", self.run_dir)
        except Exception as failure:  # noqa: BLE001  The run is over and its result written; the report can be redone.
            _LOG.error(
                "no report.html: %s: %s; try again with: composer-rl report %s",
                type(failure).__name__,
                redact_text(" ".join(str(failure).split())),
                self.run_dir,
            )
