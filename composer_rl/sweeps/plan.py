"""From composed jobs to what has to run: folders, commands, and what earlier calls have already done."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_rl.config.rundir import LOCK_NAME, RESULT_NAME
from composer_rl.sweeps.identity import config_hash, folder_name, folder_of, next_number
from composer_rl.sweeps.manifest import JobEntry, Manifest, arm_of
from composer_rl.sweeps.runner import Start, read_record
from composer_rl.trainer.checkpoint import newest_complete

ATTEMPTS = "attempts"
"""Folder, in a sweep's, of what attempts left that were not gone on with."""

_PROGRAM = "import sys; from composer_rl.cli import main; sys.exit(main(sys.argv[1:]))"


@dataclass(frozen=True, kw_only=True)
class Composed:
    """One job as Hydra composed it."""

    overrides: tuple[str, ...]
    config: dict[str, Any]
    """Resolved, without Hydra's part."""


def enter(manifest: Manifest, jobs: Sequence[Composed], *, sweep_dir: Path, earlier: dict[str, Any]) -> list[JobEntry]:
    """Add the jobs to the manifest and return their entries in order; a job of the same configuration is one job.

    A configuration that an earlier call ran keeps its folder and its count of attempts; another one gets a number that
    no folder has.
    """
    known = {entry.dir.partition("-")[2]: entry for entry in manifest.jobs}
    before = {
        str(job.get("dir", "")).partition("-")[2]: job for job in earlier.get("jobs", ()) if isinstance(job, dict)
    }
    taken = max([next_number(sweep_dir) - 1, *(entry.num for entry in manifest.jobs)], default=-1)
    entries = []
    for job in jobs:
        digest = config_hash(job.config)
        if digest not in known:
            folder = folder_of(sweep_dir, digest)
            if folder is None:
                taken += 1
            number = taken if folder is None else int(folder.name.partition("-")[0])
            known[digest] = JobEntry(
                num=number,
                dir=folder.name if folder is not None else folder_name(number, digest),
                overrides=list(job.overrides),
                seed=job.config.get("seed"),
                arm={},
                attempts=int(before.get(digest, {}).get("attempts", 0)),
            )
            manifest.jobs.append(known[digest])
        entries.append(known[digest])
    # Over all jobs: a search launches one setting at a time.
    swept = swept_keys([entry.overrides for entry in manifest.jobs])
    for entry in manifest.jobs:
        entry.arm = arm_of(entry.overrides, swept)
    return entries


def swept_keys(rows: Sequence[Sequence[str]]) -> list[str]:
    """Settings that differ between rows of overrides, in order of appearance."""
    seen: dict[str, set[str | None]] = {}
    parsed = [dict(line.lstrip("+").split("=", 1) for line in row if "=" in line) for row in rows]
    for row in parsed:
        for key in row:
            seen.setdefault(key, set())
    for row in parsed:
        for key, values in seen.items():
            values.add(row.get(key))
    return [key for key, values in seen.items() if len(values) > 1]


def to_start(
    entry: JobEntry, job: Composed, *, sweep_dir: Path, flags: Sequence[str], retry_failed: bool
) -> Start | None:
    """What has to run for a job, None when it has ended, is running elsewhere, or failed and is not to be retried.

    Sets the entry's status. A job that was cut off goes on from its newest checkpoint; without one, or after a
    failure without one, its folder is put aside and it starts again.
    """
    folder = sweep_dir / entry.dir
    record = read_record(folder)
    status = record.get("status")
    if is_held(folder):
        entry.status, entry.error = "running", "another process is running it"
        return None
    if status in ("succeeded", "stopped"):
        entry.status = status
        return None
    if status == "failed" and not retry_failed:
        error = record.get("error") or {}
        entry.status = "failed"
        entry.error = " ".join(f"{error.get('type')}: {error.get('message')}".split())
        return None
    entry.status = "pending"
    resume = newest_complete(folder) is not None and (folder / RESULT_NAME).is_file()
    if not resume:
        put_aside(folder)
    what = ["resume=true"] if resume else job.overrides
    command = [sys.executable, "-c", _PROGRAM, *flags, *what, f"hydra.run.dir={quoted(folder)}"]
    steps = job.config.get("max_steps") or (job.config.get("stage") or {}).get("max_steps")
    return Start(entry=entry, folder=folder, command=command, total_steps=steps if isinstance(steps, int) else None)


def quoted(path: Path) -> str:
    """A path as a value of Hydra's override grammar."""
    return "'" + str(path).replace("'", "\\'") + "'"


def put_aside(folder: Path) -> None:
    """Move what an attempt left to `attempts/`, which no report reads, so that the job starts in an empty folder."""
    if not folder.is_dir() or not any(entry.name != LOCK_NAME for entry in folder.iterdir()):
        return
    number = 1
    while (aside := folder.parent / ATTEMPTS / f"{folder.name}-{number}").exists():
        number += 1
    aside.parent.mkdir(exist_ok=True)
    os.rename(folder, aside)


def is_held(folder: Path) -> bool:
    """Whether a live process has claimed the folder."""
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
