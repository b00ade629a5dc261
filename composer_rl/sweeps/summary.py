"""What a sweep came to, a line an arm, printed when it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from composer_rl.sweeps.manifest import earlier_manifest
from composer_rl.sweeps.runner import read_record

_MOST_ARMS = 20


def summary_lines(sweep_dir: Path) -> list[str]:
    """The mean of the objective over each arm's jobs that ended well, how many did, and its settings; the best first.

    Means alone: whether arms differ is for the report to say. Empty without a readable sweep.json or a swept setting.
    """
    plan = earlier_manifest(sweep_dir)
    arms: dict[str, list[Mapping[str, Any]]] = {}
    for job in plan.get("jobs", ()):
        name = " ".join(f"{key}={value}" for key, value in job["arm"].items())
        arms.setdefault(name, []).append(job)
    if len(arms) < 2:
        return []
    objective = str(plan.get("objective"))
    rows = []
    for name, jobs in arms.items():
        scores = [score for job in jobs if (score := _score(sweep_dir / job["dir"], job, objective)) is not None]
        num_good = sum(job["status"] in ("succeeded", "stopped") for job in jobs)
        rows.append((sum(scores) / len(scores) if scores else None, f"{num_good} of {len(jobs)}", name))
    sign = 1 if plan.get("direction") == "minimize" else -1
    rows.sort(key=lambda row: (row[0] is None, sign * (row[0] or 0.0)))
    lines = [f"{'mean':>9}  {'jobs':>8}  {objective}"]
    lines += [
        f"{'' if mean is None else f'{mean:.4f}':>9}  {jobs:>8}  {name}" for mean, jobs, name in rows[:_MOST_ARMS]
    ]
    return lines + ([f"and {len(rows) - _MOST_ARMS} more arms"] if len(rows) > _MOST_ARMS else [])


def _score(folder: Path, job: Mapping[str, Any], objective: str) -> float | None:
    if job["status"] not in ("succeeded", "stopped"):
        return None
    value = (read_record(folder).get("metrics") or {}).get(objective)
    return float(value) if isinstance(value, int | float) else None
