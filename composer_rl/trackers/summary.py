"""What trackers read from the summary of a run (the layout of result.json)."""

from __future__ import annotations

import math
from typing import Any


def final_metrics(summary: dict[str, Any]) -> dict[str, float]:
    """Finite figures of `metrics` by their flat names, then `engagement/<knob>` for each row with a value."""
    figures: dict[str, Any] = dict(summary.get("metrics") or {})
    for row in summary.get("engagement") or []:
        figures.setdefault(f"engagement/{row.get('knob', '?')}", row.get("value"))
    return {
        name: float(value) for name, value in figures.items() if isinstance(value, int | float) and math.isfinite(value)
    }


def error_text(summary: dict[str, Any]) -> str:
    """The error of a failed run as text, "" without one; result.json may hold a string or an object."""
    error = summary.get("error")
    if isinstance(error, dict):
        return ": ".join(str(error[key]) for key in ("type", "message") if error.get(key))
    return str(error) if error else ""
