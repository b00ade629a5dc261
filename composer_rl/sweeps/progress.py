"""How far a running job is, from the last lines of its metrics.jsonl."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import orjson

_TAIL_BYTES = 16_384


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Newest figures of a job."""

    step: int = 0
    time_s: float = 0.0
    """Seconds since the run began."""
    heldout: float | None = None
    """Newest held-out solve rate."""


def read_progress(run_dir: Path) -> Progress:
    """Figures of the newest lines; zeros before the first one."""
    try:
        with open(run_dir / "metrics.jsonl", "rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - _TAIL_BYTES))
            lines = stream.read().splitlines()
    except OSError:
        return Progress()
    step, time_s, heldout = 0, 0.0, None
    for line in lines:
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue  # The first line may be cut by the tail, the last one still be written.
        if not isinstance(record, dict) or not isinstance(record.get("step"), int):
            continue
        step, time_s = max(step, record["step"]), float(record.get("time_s") or time_s)
        value = record.get("heldout/solve_rate")
        heldout = float(value) if isinstance(value, int | float) else heldout
    return Progress(step=step, time_s=time_s, heldout=heldout)
