"""Run the jobs of a sweep, one process each, several at once, and record what becomes of every one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, get_args

from composer_rl.config.rundir import RESULT_NAME
from composer_rl.process import signals_raised
from composer_rl.sweeps.environment import Slot, job_environment
from composer_rl.sweeps.manifest import JobEntry, JobStatus, Manifest
from composer_rl.sweeps.table import SweepTable

_POLL_S = 0.2
GRACE_S = 120.0
"""Seconds that interrupted jobs have to record how far they came."""


@dataclass(kw_only=True)
class Start:
    """A job that has to run."""

    entry: JobEntry
    folder: Path
    command: list[str]
    total_steps: int | None = None


@dataclass(kw_only=True)
class _Running:
    start: Start
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    slot: Slot
    told_to_end: bool = False
    since: float = field(default_factory=time.monotonic)


class SweepRunner:
    """Runs what is pending in `manifest`.

    Args:
        manifest: Written to `sweep_dir` after every change.
        sweep_dir: Folder of the sweep; the output of a job goes to `<folder>.log` in it.
        slots: Room for the jobs that run at once.
        fail_fast: After the first failure start no more jobs and interrupt the running ones.
        table: Shows the jobs.
    """

    def __init__(
        self, manifest: Manifest, sweep_dir: Path, *, slots: Sequence[Slot], fail_fast: bool, table: SweepTable
    ) -> None:
        self._manifest = manifest
        self._sweep_dir = sweep_dir
        self._free = list(reversed(slots))
        self._fail_fast = fail_fast
        self._table = table
        self._running: list[_Running] = []
        self.stopping = False
        """A job failed under fail_fast: nothing more is started."""

    def run(self, starts: Sequence[Start]) -> None:
        """Run all of them; returns when the last one has ended.

        Raises KeyboardInterrupt after the jobs that ran have recorded how far they came; a second interrupt
        meanwhile kills them.
        """
        waiting = deque(starts)
        with signals_raised(), self._table:
            try:
                while waiting or self._running:
                    while waiting and self._free and not self.stopping:
                        self._begin(waiting.popleft())
                    if self.stopping:
                        waiting.clear()
                    time.sleep(_POLL_S)
                    self._collect()
                    self._table.show({run.start.entry.num: run.start for run in self._running})
            except KeyboardInterrupt:
                self._interrupt()
                raise
            finally:
                self._kill()

    def _begin(self, start: Start) -> None:
        slot = self._free.pop()
        log = open(self._sweep_dir / f"{start.folder.name}.log", "ab")  # noqa: SIM115  (open as long as the job)
        process = subprocess.Popen(
            start.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=job_environment(slot, sweep=self._manifest.name, number=start.entry.num),
            # Its own session: a Ctrl-C at the terminal reaches the sweep, which tells its jobs.
            start_new_session=True,
        )
        if slot.cores:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(process.pid, slot.cores)
        self._running.append(_Running(start=start, process=process, log=log, slot=slot))
        start.entry.status, start.entry.error = "running", None
        start.entry.attempts += 1
        self._manifest.write(self._sweep_dir)
        self._table.began(start.entry)

    def _collect(self) -> None:
        """Take in the jobs that have ended."""
        for run in [run for run in self._running if run.process.poll() is not None]:
            self._running.remove(run)
            run.log.close()
            self._free.append(run.slot)
            entry = run.start.entry
            entry.duration_s = time.monotonic() - run.since
            entry.status, entry.error = ending(run.start.folder, run.process.returncode, told_to_end=run.told_to_end)
            self._manifest.write(self._sweep_dir)
            self._table.ended(entry, run.start.folder)
            if entry.status == "failed" and self._fail_fast and not self.stopping:
                self.stopping = True
                self._tell_to_end()

    def _interrupt(self) -> None:
        """Let the running jobs record how far they came."""
        self._tell_to_end()
        deadline = time.monotonic() + GRACE_S
        while self._running and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            self._collect()

    def _tell_to_end(self) -> None:
        """Send SIGTERM, which a job hears even where the shell that started the sweep has it ignore Ctrl-C."""
        for run in self._running:
            run.told_to_end = True
            with contextlib.suppress(ProcessLookupError):
                run.process.send_signal(signal.SIGTERM)

    def _kill(self) -> None:
        """End what still runs, whole process groups at once. Nothing is left to run in the ordinary case."""
        for run in self._running:
            run.told_to_end = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.process.pid, signal.SIGKILL)
            run.process.wait()
        self._collect()


def ending(folder: Path, exit_code: int, *, told_to_end: bool = False) -> tuple[JobStatus, str | None]:
    """Status and error line of a job whose process has ended; one that was told to end has not failed."""
    record = read_record(folder)
    status: Any = record.get("status")
    error = record.get("error")
    line = " ".join(f"{error.get('type')}: {error.get('message')}".split()) if isinstance(error, dict) else None
    if status in get_args(JobStatus) and status not in ("pending", "running"):
        return status, line
    if told_to_end:
        return "interrupted", None
    how = f"signal {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit code {exit_code}"
    return "failed", f"ended with {how} before it recorded why; see {folder.name}.log"


def read_record(folder: Path) -> dict[str, Any]:
    """result.json of a job; {} where there is none that can be read."""
    try:
        content = json.loads((folder / RESULT_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
