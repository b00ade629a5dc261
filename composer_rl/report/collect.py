"""Read a run folder, whatever state the run left it in: running, killed in the middle of a line, failed at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

RESULT_FILE = "result.json"
METRICS_FILE = "metrics.jsonl"
ROLLOUTS_FILE = "rollouts.jsonl"
KEPT_ROLLOUTS = 600
"""Rollouts kept from each end of the file: reports compare early with late training."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One metric over the run, in order of step; values that are not finite are left out."""

    steps: tuple[int, ...]
    values: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.steps)

    def at(self, step: int) -> float | None:
        """The value at exactly this step, None without one."""
        return dict(zip(self.steps, self.values, strict=True)).get(step)

    def ends(self, num: int) -> tuple[float, float]:
        """Means of the first and of the last `num` values. Raises ValueError on an empty series."""
        if not self.values:
            raise ValueError("an empty series has no ends")
        head, tail = self.values[:num], self.values[-num:]
        return sum(head) / len(head), sum(tail) / len(tail)


@dataclass(frozen=True, kw_only=True)
class RunData:
    """What a run folder holds, ready for figures and pages."""

    run_dir: Path
    result: dict[str, Any]
    """Content of result.json; {} when it cannot be read."""
    series: dict[str, Series]
    """Metric by name, from metrics.jsonl."""
    elapsed: Series
    """Seconds since the start of the run, by step."""
    rollouts: list[dict[str, Any]]
    """The first and the last rollouts of rollouts.jsonl, in file order."""
    num_rollouts: int
    """Rollouts in the file, those not kept included."""
    problems: list[str] = field(default_factory=list)
    """What could not be read, a sentence each."""

    @property
    def status(self) -> str:
        """Status of result.json, "unknown" without one."""
        return str(self.result.get("status") or "unknown")

    @property
    def metrics(self) -> dict[str, float]:
        """Final figures of result.json that are numbers."""
        figures = self.result.get("metrics")
        if not isinstance(figures, dict):
            return {}
        return {name: float(value) for name, value in figures.items() if _is_number(value)}

    @property
    def engagement(self) -> list[dict[str, Any]]:
        """Rows of the engagement table: knob, metric, value, engaged, note."""
        rows = self.result.get("engagement")
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    @property
    def last_step(self) -> int:
        """Greatest step that was logged, 0 before the first."""
        return max(self.elapsed.steps, default=0)

    @property
    def duration_s(self) -> float | None:
        """Seconds from start to end as result.json has them; of an unfinished run, up to its last log line."""
        value: Any = self.result.get("duration_s")
        if _is_number(value):
            return float(value)
        return max(self.elapsed.values, default=None)


def load_run(run_dir: Path, *, kept_rollouts: int = KEPT_ROLLOUTS) -> RunData:
    """Read a run folder, with at most `kept_rollouts` rollouts from each end of the file.

    Raises FileNotFoundError when it holds none of the files of a run.
    """
    if not any((run_dir / name).is_file() for name in (RESULT_FILE, METRICS_FILE, ROLLOUTS_FILE)):
        raise FileNotFoundError(
            f"{run_dir} is no run folder: it has no {RESULT_FILE}, {METRICS_FILE} or {ROLLOUTS_FILE}"
        )
    problems: list[str] = []
    result = read_result(run_dir / RESULT_FILE, problems)
    columns, elapsed = _read_metrics(run_dir / METRICS_FILE, problems)
    rollouts, num_rollouts = _read_rollouts(run_dir / ROLLOUTS_FILE, problems, kept_rollouts)
    return RunData(
        run_dir=run_dir,
        result=result,
        series={name: _series(points) for name, points in columns.items()},
        elapsed=_series(elapsed),
        rollouts=rollouts,
        num_rollouts=num_rollouts,
        problems=problems,
    )


def read_result(path: Path, problems: list[str]) -> dict[str, Any]:
    """Content of a result.json, {} when it cannot be read; why not goes to `problems`, a sentence."""
    try:
        content = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        problems.append(f"{path.name} is missing.")
        return {}
    except (OSError, orjson.JSONDecodeError) as error:
        problems.append(f"{path.name} cannot be read: {error}.")
        return {}
    if not isinstance(content, dict):
        problems.append(f"{path.name} is no JSON object.")
        return {}
    return content


def _read_metrics(path: Path, problems: list[str]) -> tuple[dict[str, dict[int, float]], dict[int, float]]:
    """Value by step by metric, and time by step; of two lines with one step the later wins, metric by metric."""
    columns: dict[str, dict[int, float]] = {}
    elapsed: dict[int, float] = {}
    for record in _lines(path, problems, _has_step):
        step = record["step"]
        for name, value in record.items():
            if name == "time_s":
                if _is_number(value):
                    elapsed[step] = float(value)
            elif name != "step" and _is_number(value):
                columns.setdefault(name, {})[step] = float(value)
    return columns, elapsed


def _read_rollouts(path: Path, problems: list[str], kept: int) -> tuple[list[dict[str, Any]], int]:
    first: list[dict[str, Any]] = []
    last: deque[dict[str, Any]] = deque(maxlen=kept)
    num = 0
    for record in _lines(path, problems, _is_rollout):
        num += 1
        if len(first) < kept:
            first.append(record)
        else:
            last.append(record)
    return [*first, *last], num


def _lines(path: Path, problems: list[str], is_valid: Callable[[dict[str, Any]], bool]) -> Iterator[dict[str, Any]]:
    """The valid objects of a JSONL file; how many lines are not goes to `problems`."""
    num_bad = 0
    try:
        with path.open("rb") as file:
            for line in file:
                if not line.strip():
                    continue
                try:
                    record = orjson.loads(line)
                except orjson.JSONDecodeError:
                    num_bad += 1
                    continue
                if isinstance(record, dict) and is_valid(record):
                    yield record
                else:
                    num_bad += 1
    except FileNotFoundError:
        problems.append(f"{path.name} is missing.")
    except OSError as error:
        problems.append(f"{path.name} cannot be read: {error}.")
    if num_bad:
        lines = "one line" if num_bad == 1 else f"{num_bad} lines"
        problems.append(f"{path.name}: {lines} could not be read and {'was' if num_bad == 1 else 'were'} left out.")


def _has_step(record: dict[str, Any]) -> bool:
    return type(record.get("step")) is int


def _is_rollout(record: dict[str, Any]) -> bool:
    turns = record.get("turns")
    return _has_step(record) and isinstance(turns, list) and all(isinstance(turn, dict) for turn in turns)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _series(points: dict[int, float]) -> Series:
    ordered = sorted(points.items())
    return Series(steps=tuple(step for step, _ in ordered), values=tuple(value for _, value in ordered))
