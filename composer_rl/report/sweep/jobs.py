"""Read sweep folders: every job that was planned or left a trace, whatever state it is in.

A sweep folder holds one folder a job (`<num>-<hash>`, the files of a run), and `sweep.json` where the sweep's own
launcher wrote it; without that file the folders alone are the jobs. Nothing in a job folder can break a report: what
cannot be read is a job with the status "unreadable", counted and named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import orjson

from composer_rl.config.redact import redact_override, redact_text
from composer_rl.report.collect import METRICS_FILE, RESULT_FILE, ROLLOUTS_FILE, RunData, load_run
from composer_rl.report.sweep.lock import is_held
from composer_rl.report.sweep.recipe import recipe_of

SWEEP_FILE = "sweep.json"
JobStatus = Literal["succeeded", "stopped", "running", "interrupted", "failed", "missing", "unreadable"]
"""How a job stands. `stopped` ended early on purpose and has its figures; `missing` was planned and has not begun;
`unreadable` has a folder without a readable result."""

_JOB_FOLDER = re.compile(r"\d+-[0-9a-f]{8}")
_KEPT_ROLLOUTS = 60
"""Rollouts kept from each end of a job's file."""
_NOT_SETTINGS = re.compile(
    r"^[+~]*(seed|run_name|tags|resume|rerun|trusted_packages|multirun_sweeps|(tracker|hydra)([./].*)?)$"
)
"""Overrides that name or place a job and set nothing of its recipe."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job of a sweep, or one run."""

    sweep: str
    """Name of the sweep's folder."""
    num: int | None
    name: str
    """Name of the job's folder; of one that has none yet, its number."""
    folder: Path
    """Where the job's files are or would be."""
    status: JobStatus
    seed: int | None
    error: str = ""
    """What ended it, one line; empty where nothing is wrong."""
    choice: Mapping[str, str] | None = None
    """Setting and value that make its arm, as swept; None where nothing says."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Overrides that set something of the recipe."""
    recipe: Mapping[str, Any] | None = None
    """Flat settings that two jobs of one arm share (`recipe.py`); None where the job left no configuration."""
    run: RunData | None = None

    @property
    def metrics(self) -> Mapping[str, float]:
        """Final figures; none of a job that did not end with them."""
        return self.run.metrics if self.run is not None and self.status in ("succeeded", "stopped") else {}


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The jobs of one folder and what its launcher said about them."""

    folder: Path
    name: str
    question: str = ""
    """What the sweep was made to answer."""
    objective: str = ""
    """Final figure that arms are compared by; empty where nothing says."""
    minimize: bool = False
    baseline: Mapping[str, str] | None = None
    """Setting and value of the arm to compare with."""
    command: tuple[str, ...] = ()
    """Redacted."""
    created: str = ""
    jobs: tuple[Job, ...] = ()
    problems: tuple[str, ...] = ()
    """What could not be read, a sentence each."""


def is_sweep(folder: Path) -> bool:
    """Whether a folder is a sweep's by its looks: it has sweep.json, or folders that are named like a job's."""
    return (folder / SWEEP_FILE).is_file() or any(_JOB_FOLDER.fullmatch(path.name) for path in job_folders(folder))


def load_sweep(folder: Path) -> Sweep:
    """Read a sweep; folders of any name that hold a run are its jobs.

    Raises FileNotFoundError when the folder holds neither sweep.json nor a job.
    """
    if not (folder / SWEEP_FILE).is_file() and not job_folders(folder):
        raise FileNotFoundError(f"{folder} is no sweep folder: it has no {SWEEP_FILE} and no folders of jobs")
    plan, problems = _read_plan(folder / SWEEP_FILE)
    entries = [entry for entry in _list(plan.get("jobs")) if isinstance(entry, dict)]
    planned = {_folder_name(entry): entry for entry in entries}
    folders = job_folders(folder)
    names = [*planned, *(path.name for path in folders if path.name not in planned)]
    jobs = [_load_job(folder, name, planned.get(name, {})) for name in names]
    jobs.sort(key=lambda job: (job.num is None, job.num or 0, job.name))
    baseline = plan.get("baseline")
    return Sweep(
        folder=folder,
        name=str(plan.get("name") or folder.name),
        question=str(plan.get("question") or ""),
        objective=str(plan.get("objective") or ""),
        minimize=plan.get("direction") == "minimize",
        baseline={str(key): as_choice(value) for key, value in baseline.items()}
        if isinstance(baseline, dict)
        else None,
        command=_command(plan, jobs),
        created=str(plan.get("created") or _first_start(jobs)),
        jobs=tuple(jobs),
        problems=tuple(problems),
    )


def load_runs(folders: Sequence[Path]) -> list[Job]:
    """Single runs as jobs, in the order given. Raises FileNotFoundError for a folder without a run."""
    jobs = []
    for folder in folders:
        job = _load_job(folder.parent, folder.name, {})
        if job.run is None:
            raise FileNotFoundError(f"{folder} is no run folder: {job.error}")
        jobs.append(job)
    return jobs


def as_choice(value: Any) -> str:
    """A swept value as text; numbers read from JSON and from the command line look the same."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read_plan(path: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        plan = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}, []
    except (OSError, orjson.JSONDecodeError) as error:
        return {}, [f"{path.name} cannot be read ({error}): jobs that have not begun are not counted."]
    return (plan, []) if isinstance(plan, dict) else ({}, [f"{path.name} is no JSON object and was left out."])


def job_folders(folder: Path) -> list[Path]:
    """Folders below a sweep's that are named like a job's or hold a run."""
    try:
        entries = sorted(entry for entry in folder.iterdir() if entry.is_dir())
    except OSError:
        return []
    marks = (RESULT_FILE, METRICS_FILE, ROLLOUTS_FILE)
    return [
        entry
        for entry in entries
        if _JOB_FOLDER.fullmatch(entry.name) or any((entry / mark).is_file() for mark in marks)
    ]


def _folder_name(entry: Mapping[str, Any]) -> str:
    """Name of a planned job's folder, below the sweep's folder wherever that was moved to."""
    return Path(str(entry["dir"])).name if entry.get("dir") else f"job {entry.get('num')}"


def _load_job(sweep: Path, name: str, entry: Mapping[str, Any]) -> Job:
    arm, overrides = entry.get("arm"), entry.get("overrides")
    num = entry.get("num")
    job = Job(
        sweep=sweep.name,
        num=num if isinstance(num, int) else _leading_number(name),
        name=name,
        folder=sweep / name,
        status=_known(entry.get("status")) or "missing",
        seed=entry["seed"] if isinstance(entry.get("seed"), int) else None,
        error=_one_line(entry.get("error")),
        choice={str(key): as_choice(value) for key, value in arm.items()} if isinstance(arm, dict) else None,
        overrides=_settings_in(_list(overrides)),
    )
    try:
        run = load_run(sweep / name, kept_rollouts=_KEPT_ROLLOUTS)
    except FileNotFoundError:
        if (sweep / name).is_dir() and job.status == "missing" and "status" not in entry:
            return replace(job, status="unreadable", error="its folder is empty")
        return job
    result = run.result
    if not result:
        error = next(iter(run.problems), "it has no result.json")
        return replace(job, status="unreadable", error=error, run=run)
    status, error = status_of(result, sweep / name)
    if status == "interrupted" and job.status == "failed":  # The launcher saw how the process ended.
        status, error = "failed", ""
    seed = _mapping(result.get("seeds")).get("seed", _mapping(result.get("config")).get("seed"))
    config = result.get("config")
    return replace(
        job,
        status=status,
        error=error or (job.error if status == "failed" else ""),
        seed=seed if type(seed) is int else job.seed,
        overrides=_settings_in(_list(result.get("overrides"))) or job.overrides,
        recipe=recipe_of(config, stage=str(result.get("stage") or "")) if isinstance(config, dict) and config else None,
        run=run,
    )


def _known(status: Any) -> JobStatus | None:
    return next((known for known in get_args(JobStatus) if known == status), None)


def status_of(result: Mapping[str, Any], folder: Path) -> tuple[JobStatus, str]:
    """Status and error line of a run from its result; one that says "running" is asked whether its process lives."""
    status = result.get("status")
    if status == "running" and is_held(folder) is False:
        return "interrupted", "its process ended without a word"
    known = _known(status)
    return (known, _one_line(result.get("error"))) if known else ("unreadable", f"its status is {status!r}")


def _settings_in(overrides: Sequence[Any]) -> dict[str, str]:
    """Overrides as setting and value, without those that only name or place a job."""
    found = {}
    for override in overrides:
        key, equals, value = redact_override(str(override)).partition("=")
        if not _NOT_SETTINGS.match(key):
            found[key.lstrip("+")] = value if equals else "removed"
    return found


def _command(plan: Mapping[str, Any], jobs: Sequence[Job]) -> tuple[str, ...]:
    words = plan.get("command")
    if isinstance(words, str):
        return (redact_text(words),)
    if not isinstance(words, list):
        words = next((job.run.result.get("command") for job in jobs if job.run and job.run.result.get("command")), None)
    return tuple(redact_override(str(word)) for word in _list(words))


def _first_start(jobs: Sequence[Job]) -> str:
    return min((str(job.run.result.get("started_at")) for job in jobs if job.run and job.run.result.get("started_at")),
               default="")  # fmt: skip


def _leading_number(name: str) -> int | None:
    number = name.partition("-")[0]
    return int(number) if _JOB_FOLDER.fullmatch(name) else None


def _one_line(error: Any) -> str:
    """The message of an error (text, or a mapping with `type` and `message`), without its traceback."""
    if isinstance(error, dict):
        error = ": ".join(str(part) for part in (error.get("type"), error.get("message")) if part)
    return redact_text(" ".join(str(error).split())) if error else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
