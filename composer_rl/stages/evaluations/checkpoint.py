"""pass@1 and pass@k of a policy, with intervals over tasks.

pass@k of a task with n samples of which c solve it is 1 - C(n - c, k) / C(n, k), the unbiased estimator of
arXiv 2107.03374 (Codex), equation 1. A sample solves a task when its first turn does; recovery is counted apart.
The interval is a BCa bootstrap over tasks, since the samples of one task are not independent.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from composer_rl.errors import ConfigError
from composer_rl.stages.base import RunContext, StageResult
from composer_rl.stages.evaluations.base import Evaluation
from composer_rl.types import Rollout, Split

_NUM_RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over tasks with its interval."""

    value: float
    low: float
    high: float


@dataclass(kw_only=True)
class CheckpointEvaluation(Evaluation):
    """`evaluate=checkpoint`: how often the policy solves a task."""

    split: Split = "heldout"
    """Tasks to measure on."""
    num_tasks: int | None = None
    """First tasks of the split, at least 2; None takes all."""
    samples_per_task: int = 8
    """Episodes per task, at least the largest k."""
    k: list[int] = field(default_factory=lambda: [1, 4, 8])
    """Which pass@k to report, each at least 1."""
    confidence: float = 0.95
    """Coverage of the intervals, range (0, 1)."""

    def __post_init__(self) -> None:
        if self.num_tasks is not None and self.num_tasks < 2:
            raise ValueError(f"num_tasks must be at least 2, or null for all, got {self.num_tasks}")
        if not self.k or min(self.k) < 1:
            raise ValueError(f"k must be a non-empty list of numbers of at least 1, got {self.k}")
        if self.samples_per_task < max(self.k):
            raise ValueError(
                f"samples_per_task must be at least the largest k={max(self.k)}, got {self.samples_per_task}"
            )
        if not 0.0 < self.confidence < 1.0:
            raise ValueError(f"confidence must be in (0, 1), got {self.confidence}")

    def evaluate(self, context: RunContext) -> StageResult:
        """Sample, estimate, print."""
        from composer_rl.stages.policy import open_policy

        with open_policy(context) as policy:
            tasks = list(policy.env.tasks(self.split))[: self.num_tasks]
            if len(tasks) < 2:
                raise ConfigError(f"evaluate.split={self.split} has {len(tasks)} tasks; an interval needs at least 2")
            context.trackers.phase(f"sampling {self.samples_per_task} episodes of {len(tasks)} tasks")
            rollouts = policy.sample(policy.model, tasks, num_samples=self.samples_per_task, seed=context.seed)
            policy.rollout_log.write(rollouts, step=0, split=self.split)
        estimates = self.estimates(rollouts)
        metrics = {"evaluate/num_tasks": float(len(tasks)), "evaluate/num_samples": float(len(rollouts))}
        for name, estimate in estimates.items():
            metrics |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
        _print_table(estimates, confidence=self.confidence)
        context.trackers.log(metrics, step=0)
        return StageResult(metrics=metrics)

    def estimates(self, rollouts: Sequence[Rollout]) -> dict[str, Estimate]:
        """`evaluate/pass@<k>` and `evaluate/recovery_rate` of rollouts with several samples a task."""
        by_task: dict[str, list[Rollout]] = defaultdict(list)
        for rollout in rollouts:
            by_task[rollout.task_id].append(rollout)
        per_task = {
            f"evaluate/pass@{k}": [
                pass_at_k(len(group), sum(rollout.solved_first for rollout in group), k) for group in by_task.values()
            ]
            for k in sorted(set(self.k))
        }
        recoveries = [_recovery_share(group) for group in by_task.values()]
        per_task["evaluate/recovery_rate"] = [share for share in recoveries if share is not None]
        return {
            name: mean_with_interval(values, confidence=self.confidence)
            for name, values in per_task.items()
            if len(values) >= 2
        }


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Probability that at least one of k samples drawn without replacement is correct.

    Raises:
        ValueError: unless 0 <= num_correct <= num_samples and 1 <= k <= num_samples.
    """
    if not 0 <= num_correct <= num_samples or not 1 <= k <= num_samples:
        raise ValueError(
            f"pass_at_k needs 0 <= num_correct <= num_samples and 1 <= k <= num_samples, got num_samples="
            f"{num_samples}, num_correct={num_correct}, k={k}"
        )
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def mean_with_interval(values: Sequence[float], *, confidence: float) -> Estimate:
    """Mean of per-task values with a BCa bootstrap interval; a constant sample has an interval of width 0."""
    import numpy as np
    from scipy.stats import bootstrap

    mean = float(np.mean(values))
    if min(values) == max(values):
        return Estimate(value=mean, low=mean, high=mean)
    interval = bootstrap(
        (np.asarray(values),),
        np.mean,
        confidence_level=confidence,
        n_resamples=_NUM_RESAMPLES,
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Estimate(value=mean, low=float(interval.low), high=float(interval.high))


def _recovery_share(group: Sequence[Rollout]) -> float | None:
    second_turns = [rollout.turns[1].reward >= 1.0 for rollout in group if len(rollout.turns) > 1]
    return sum(second_turns) / len(second_turns) if second_turns else None


def _print_table(estimates: dict[str, Estimate], *, confidence: float) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Held-out evaluation", title_justify="left")
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_column(f"{confidence:.0%} interval over tasks", justify="right")
    for name, estimate in estimates.items():
        table.add_row(
            name.removeprefix("evaluate/"), f"{estimate.value:.3f}", f"{estimate.low:.3f} to {estimate.high:.3f}"
        )
    Console().print(table)
