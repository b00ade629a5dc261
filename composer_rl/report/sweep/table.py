"""The jobs of a sweep as CSV, one row a job, for whoever wants to compute something else."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from composer_rl.report.sweep.arms import Arm
from composer_rl.report.sweep.comparison import ArmResult, Comparison
from composer_rl.report.sweep.cost import run_cost
from composer_rl.report.sweep.jobs import Job

_FIXED = ("sweep", "job", "folder", "arm", "baseline", "void", "verdict", "seed", "status", "error", "counted",
          "seconds", "tokens", "dollars")  # fmt: skip


def jobs_csv(comparison: Comparison) -> str:
    """Rows of all jobs, the repeated and the unassigned ones included; then a row for every seed that an arm lacks.

    Columns: what the job is, `set/<setting>` for what was swept, and its final figures under their own names. A cell
    is empty where a job does not have the figure.
    """
    results = comparison.results
    rows = [_row(job, result, comparison, counted=True) for result in results for job in result.arm.jobs]
    rows += [_row(job, _owner(job, results), comparison, counted=False) for job in comparison.repeats]
    rows += [_row(job, None, comparison, counted=False) for job in comparison.strays]
    for result in results:
        absent = [seed for seed in comparison.seeds if seed not in result.arm.by_seed]
        rows += [{**_arm_cells(result, comparison), "seed": seed, "status": "missing"} for seed in absent]
    metrics = sorted({name for row in rows for name in row if name not in _FIXED and not name.startswith("set/")})
    columns = [*_FIXED, *(f"set/{knob}" for knob in comparison.knobs), *metrics]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _safe(value) for name, value in row.items()} for row in rows)
    return stream.getvalue()


def _row(job: Job, result: ArmResult | None, comparison: Comparison, *, counted: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        **(_arm_cells(result, comparison) if result is not None else {}),
        "sweep": job.sweep,
        "job": "" if job.num is None else job.num,
        "folder": job.name,
        "seed": "" if job.seed is None else job.seed,
        "status": job.status,
        "error": job.error,
        "counted": counted,
    }
    if job.run is not None:
        cost = run_cost(job.run)
        figures = {"seconds": cost.seconds, "tokens": cost.tokens, "dollars": cost.dollars, **job.run.metrics}
        row |= {name: value for name, value in figures.items() if value is not None}
    return row


def _arm_cells(result: ArmResult, comparison: Comparison) -> dict[str, Any]:
    return {
        "arm": result.arm.label,
        "baseline": result.is_baseline,
        "void": result.is_void,
        "verdict": "" if result.verdict is None else result.verdict.kind,
        **{f"set/{knob}": result.arm.choice.get(knob, "") for knob in comparison.knobs},
    }


def _owner(job: Job, results: Sequence[ArmResult]) -> ArmResult | None:
    """The arm in which a repeated job would have counted."""

    def is_of(arm: Arm) -> bool:
        return (arm.recipe is not None and arm.recipe == job.recipe) or (
            job.recipe is None and any(other.choice == job.choice for other in arm.jobs)
        )

    return next((result for result in results if is_of(result.arm)), None)


def _safe(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula is kept from it."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value
