"""Runs and sweeps below a folder, with what each of them came to."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import orjson

from composer_rl.report.collect import RESULT_FILE, read_result
from composer_rl.report.sweep.comparison import OBJECTIVES
from composer_rl.report.sweep.jobs import SWEEP_FILE, is_sweep, job_folders, status_of
from composer_rl.report.words import date

ROOTS = ("outputs", "multirun")
"""Where runs and sweeps are, below the folder that commands are given in."""
_DEPTH = 4
_COLORS = {"succeeded": "green", "stopped": "green", "failed": "red", "unreadable": "red"}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One run or one sweep."""

    kind: str
    """`run` or `sweep`."""
    path: str
    status: str
    """Of a run; of a sweep that of all its jobs, else `running`, `incomplete` or `failed`."""
    jobs: dict[str, int]
    """Jobs of a sweep by status."""
    figures: dict[str, list[float]]
    """Main figures by name: before and after of a run, lowest and highest of a sweep's jobs."""
    started: str
    """ISO 8601; empty where it is not known."""


def find_entries(roots: Sequence[Path]) -> list[Entry]:
    """Runs and sweeps below the folders, the newest first. Jobs of a sweep are not listed one by one."""
    entries = [entry for root in roots if root.is_dir() for entry in _walk(root, _DEPTH)]
    return sorted(entries, key=lambda entry: entry.started, reverse=True)


def write_table(entries: Sequence[Entry], stream: TextIO | None = None) -> None:
    """A table with colours on a terminal, aligned words elsewhere."""
    out = stream or sys.stdout
    rows = [
        (entry.kind, entry.path, _status_words(entry), _figure_words(entry), date(entry.started)) for entry in entries
    ]
    if not out.isatty():
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
        for row in rows:
            out.write(
                "  ".join([*(word.ljust(width) for word, width in zip(row[:4], widths, strict=True)), row[4]]).rstrip()
                + "\n"
            )
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("", "folder", "status", "figures", "started", box=None, pad_edge=False, header_style="dim")
    for entry, (kind, path, status, figures, started) in zip(entries, rows, strict=True):
        color = _COLORS.get(entry.status, "yellow")
        table.add_row(kind, Text(path, overflow="fold"), Text(status, style=color), Text(figures), started)
    Console(file=out).print(table)


def as_json(entries: Sequence[Entry]) -> str:
    """The entries as a JSON list of objects with the fields of `Entry`."""
    return orjson.dumps([asdict(entry) for entry in entries], option=orjson.OPT_INDENT_2).decode()


def _walk(folder: Path, depth: int) -> Iterator[Entry]:
    if (folder / RESULT_FILE).is_file():
        yield _run(folder)
    elif is_sweep(folder):
        yield _sweep(folder)
    elif depth > 0:
        try:
            below = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
        except OSError:
            return
        for path in below:
            yield from _walk(path, depth - 1)


def _run(folder: Path) -> Entry:
    result = read_result(folder / RESULT_FILE, [])
    figures = {}
    for objective in OBJECTIVES:
        name = objective.removesuffix("_after")
        ends = [_metric(result, f"{name}_{end}") for end in ("before", "after")]
        if found := [value for value in ends if value is not None]:
            figures[name] = found
    return Entry(
        kind="run",
        path=_shown(folder),
        status=status_of(result, folder)[0],
        jobs={},
        figures=figures,
        started=str(result.get("started_at") or ""),
    )


def _sweep(folder: Path) -> Entry:
    plan = read_result(folder / SWEEP_FILE, [])
    results = {path.name: read_result(path / RESULT_FILE, []) for path in job_folders(folder)}
    planned = plan.get("jobs")
    begun = len(results)
    counts = Counter(str(status_of(result, folder / name)[0]) for name, result in results.items())
    if isinstance(planned, list) and len(planned) > begun:
        counts["missing"] = len(planned) - begun
    objective = str(plan.get("objective") or OBJECTIVES[0])
    values = [value for result in results.values() if (value := _metric(result, objective)) is not None]
    started = [str(result["started_at"]) for result in results.values() if result.get("started_at")]
    return Entry(
        kind="sweep",
        path=_shown(folder),
        status=_sweep_status(counts),
        jobs=dict(counts),
        figures={objective: [min(values), max(values)]} if values else {},
        started=str(plan.get("created") or min(started, default="")),
    )


def _sweep_status(counts: Counter[str]) -> str:
    if counts["running"]:
        return "running"
    if len(counts) == 1:
        return next(iter(counts))
    return (
        "incomplete" if counts["missing"] or counts["interrupted"] else "failed" if counts["failed"] else "incomplete"
    )


def _metric(result: dict[str, Any], name: str) -> float | None:
    metrics = result.get("metrics")
    value = metrics.get(name) if isinstance(metrics, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _shown(folder: Path) -> str:
    try:
        return str(folder.relative_to(Path.cwd()))
    except ValueError:
        return str(folder)


def _status_words(entry: Entry) -> str:
    return ", ".join(f"{num} {status}" for status, num in entry.jobs.items()) if entry.kind == "sweep" else entry.status


def _figure_words(entry: Entry) -> str:
    link = " to " if entry.kind == "sweep" else " → "
    return "; ".join(
        f"{name} {link.join(f'{value:.3f}' for value in values)}" for name, values in entry.figures.items()
    )
