"""metrics.jsonl in the run directory: one JSON object a line, whole lines only, safe to resume."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from composer_rl.errors import RunDirectoryError
from composer_rl.trackers.base import RunInfo, Tracker

METRICS_FILE = "metrics.jsonl"
"""`{"step": int, "time_s": float, ...}` a line; a value that is not finite is null."""
ROLLOUTS_FILE = "rollouts.jsonl"
"""One rollout a line, with its `step` and `split`; written by the trainer."""


def drop_lines_after(path: Path, step: int) -> float:
    """Keep the lines of a JSONL file whose `step` is at most `step`; what is no JSON object with a step goes too.

    The file is replaced atomically, and only if a line has to go. Returns the largest `time_s` among the kept
    lines (seconds since the run began; 0.0 without one or without a file).
    """
    if not path.exists():
        return 0.0
    kept: list[bytes] = []
    elapsed_s = 0.0
    content = path.read_bytes()
    for line in content.splitlines():
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if not isinstance(record, dict) or not isinstance(record.get("step"), int) or record["step"] > step:
            continue
        kept.append(line + b"\n")
        if isinstance(record.get("time_s"), int | float):
            elapsed_s = max(elapsed_s, float(record["time_s"]))
    if b"".join(kept) != content:
        draft = path.with_name(path.name + ".tmp")
        draft.write_bytes(b"".join(kept))
        os.replace(draft, path)
    return elapsed_s


@dataclass(kw_only=True)
class JsonlTracker(Tracker):
    """Writes `metrics.jsonl`; each call ends with a flush, so a kill loses nothing that was logged."""

    def __post_init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._zero_s = 0.0

    def start(self, info: RunInfo) -> None:
        """Open the file. Raises RunDirectoryError if a new run finds another run's metrics.

        A resumed run drops the lines beyond its checkpoint, those of rollouts.jsonl (the trainer's) included, and
        `time_s` goes on from the last line that stays.
        """
        path = info.run_dir / METRICS_FILE
        elapsed_s = 0.0
        if info.resume_step is not None:
            elapsed_s = drop_lines_after(path, info.resume_step)
            drop_lines_after(info.run_dir / ROLLOUTS_FILE, info.resume_step)
        elif path.exists():
            raise RunDirectoryError(
                f"{path} exists: a new run does not write to another run's metrics; "
                "choose another folder (hydra.run.dir=...) or continue that run with resume=true"
            )
        self._file = path.open("ab")
        self._zero_s = time.monotonic() - elapsed_s

    def log(self, metrics: dict[str, float], *, step: int) -> None:
        """Append one line; a value that is not finite becomes null."""
        if self._file is None:
            raise RuntimeError("JsonlTracker.log was called before start or after finish")
        record = {"step": step, "time_s": round(time.monotonic() - self._zero_s, 3)}
        record.update((name, value) for name, value in metrics.items() if name not in record)
        self._file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
        self._file.flush()

    def finish(self, status: str, summary: dict[str, Any]) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
