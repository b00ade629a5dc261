"""The live table of a sweep's jobs; plain lines where stdout is no terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from composer_rl.sweeps.manifest import JobEntry, Manifest
from composer_rl.sweeps.progress import read_progress

if TYPE_CHECKING:
    from composer_rl.sweeps.runner import Start

_STYLES = {"succeeded": "green", "running": "bold cyan", "failed": "red", "interrupted": "yellow", "stopped": "yellow"}
_ROWS = 16
"""Most jobs in the live table: those that run, then the newest that have ended, then those that wait."""
_REFRESH_S = 1.0


class SweepTable:
    """Shows the jobs of a manifest. Use as a context manager.

    Args:
        manifest: The sweep.
        sweep_dir: Its folder.
        num_parallel: Jobs that run at once, for the time left.
    """

    def __init__(self, manifest: Manifest, sweep_dir: Path, *, num_parallel: int) -> None:
        from rich.console import Console

        self._manifest, self._sweep_dir, self._num_parallel = manifest, sweep_dir, num_parallel
        self._console = Console(highlight=False)
        self._live: Any = None
        self._shown = 0.0
        self._started = time.monotonic()
        self._durations: list[float] = []

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def began(self, entry: JobEntry) -> None:
        """A job was started."""
        if self._live is None:
            again = f", attempt {entry.attempts}" if entry.attempts > 1 else ""
            self._line(f"job {entry.num} started{again}: {' '.join(entry.overrides)}")

    def ended(self, entry: JobEntry, folder: Path) -> None:
        """A job has ended."""
        if entry.duration_s is not None and entry.status == "succeeded":
            self._durations.append(entry.duration_s)
        if self._live is None or entry.status == "failed":
            heldout = read_progress(folder).heldout
            figure = "" if heldout is None else f", held-out solved {heldout:.3f}"
            error = f": {entry.error}" if entry.error else ""
            took = f" after {format_s(entry.duration_s or 0.0)}"
            self._line(f"job {entry.num} {entry.status}{took}{figure}{error} ({self._counts()}{self._left_text()})")

    def show(self, running: Mapping[int, Start]) -> None:
        """Refresh the table, at most once a second."""
        now = time.monotonic()
        if self._live is None or now - self._shown < _REFRESH_S:
            return
        self._shown = now
        self._live.update(self._table(running), refresh=True)

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def _counts(self) -> str:
        done = sum(job.status not in ("pending", "running") for job in self._manifest.jobs)
        return f"{done} of {len(self._manifest.jobs)} jobs ended"

    def _left_s(self) -> float | None:
        """Seconds until the last job ends, from the mean duration of those that succeeded in this call."""
        if not self._durations:
            return None
        mean = sum(self._durations) / len(self._durations)
        open_jobs = sum(job.status in ("pending", "running") for job in self._manifest.jobs)
        return mean * -(-open_jobs // self._num_parallel)

    def _left_text(self) -> str:
        left = self._left_s()
        return f", about {format_s(left)} left" if left else ""

    def _table(self, running: Mapping[int, Start]) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(
            title=f"{self._manifest.name}: {self._counts()}, {format_s(time.monotonic() - self._started)} elapsed"
            f"{self._left_text()}",
            title_justify="left",
            box=None,
            padding=(0, 2, 0, 0),
            header_style="dim",
        )
        for name, justify in (("job", "right"), ("status", "left"), ("step", "right"), ("held-out", "right")):
            table.add_column(name, justify=justify)  # type: ignore[arg-type]
        table.add_column("left", justify="right")
        table.add_column("settings", overflow="ellipsis", no_wrap=True)
        chosen = self._chosen()
        for job in chosen:
            progress = read_progress(self._sweep_dir / job.dir)
            start = running.get(job.num)
            total = start.total_steps if start is not None else None
            step = f"{progress.step}/{total}" if total else str(progress.step or "")
            left = progress.time_s / progress.step * (total - progress.step) if total and progress.step else None
            table.add_row(
                str(job.num),
                Text(job.status, _STYLES.get(job.status, "dim")),
                step,
                "" if progress.heldout is None else f"{progress.heldout:.3f}",
                "" if left is None else format_s(left),
                Text(" ".join(f"{k}={v}" for k, v in job.arm.items()) + f" seed={job.seed}"),
            )
        hidden = len(self._manifest.jobs) - len(chosen)
        if hidden:
            table.caption = f"and {hidden} more"
        return table

    def _chosen(self) -> list[JobEntry]:
        order = {"running": 0, "failed": 1, "interrupted": 1, "succeeded": 2, "stopped": 2, "pending": 3}
        jobs = sorted(
            self._manifest.jobs, key=lambda job: (order[job.status], -job.num if job.status != "pending" else job.num)
        )
        return sorted(jobs[:_ROWS], key=lambda job: job.num)


def format_s(seconds: float) -> str:
    """`0:42`, `12:05`, `3:02:11`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
