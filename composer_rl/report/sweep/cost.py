"""What each arm cost: tokens, seconds, dollars where something was paid."""

from __future__ import annotations

from dataclasses import dataclass

from composer_rl.report.collect import RunData
from composer_rl.report.sweep.comparison import ArmResult


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Totals over the jobs of an arm, failed and unfinished ones included."""

    num_jobs: int
    """Jobs that ran at all."""
    seconds: float
    """Wall-clock time of all jobs, one after the other."""
    tokens: float | None
    """Tokens seen in training; None where nothing counted them."""
    dollars: float | None
    """Sum of the figures whose name ends in `spent_usd`; None where there are none."""


def cost_of(result: ArmResult) -> Cost:
    """Cost of one arm."""
    return total([run_cost(job.run) for job in result.arm.jobs if job.run is not None])


def run_cost(run: RunData) -> Cost:
    """Cost of one run. Of a resumed run result.json has the last session only, so its log is asked too."""
    logged = max(run.elapsed.values, default=0.0)
    tokens = run.metrics.get("train/tokens")
    series = run.series.get("num_tokens")
    if series is not None and len(series):
        tokens = max(tokens or 0.0, series.values[-1])
    spent = {name: value for name, value in run.metrics.items() if name.endswith("spent_usd")}
    for name, curve in run.series.items():
        if name.endswith("spent_usd") and len(curve):
            spent.setdefault(name, curve.values[-1])
    return Cost(
        num_jobs=1,
        seconds=max(run.duration_s or 0.0, logged),
        tokens=tokens,
        dollars=sum(spent.values()) if spent else None,
    )


def total(costs: list[Cost]) -> Cost:
    """Sum of costs; what none of them knows stays None."""
    tokens = [cost.tokens for cost in costs if cost.tokens is not None]
    dollars = [cost.dollars for cost in costs if cost.dollars is not None]
    return Cost(
        num_jobs=sum(cost.num_jobs for cost in costs),
        seconds=sum(cost.seconds for cost in costs),
        tokens=sum(tokens) if tokens else None,
        dollars=sum(dollars) if dollars else None,
    )
