"""Rollouts of all arms to read side by side: the same tasks in every arm as far as they were logged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from composer_rl.report.rollouts import RolloutView, view
from composer_rl.report.sweep.comparison import ArmResult, Comparison

_PER_ARM = 8
_ON_A_PAGE = 160
"""Rollouts on a page with many arms."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One rollout of one arm."""

    seed: int | None
    rollout: RolloutView


def samples(comparison: Comparison) -> dict[int, list[Sample]]:
    """Rollouts by arm, late in training; tasks that most arms have come first, in the same order in every arm.

    Held-out rollouts come before those of training, because every arm meets the same held-out tasks. Of several
    rollouts of one task the last of the lowest seed is taken.
    """
    limit = max(2, min(_PER_ARM, _ON_A_PAGE // len(comparison.results)))
    by_arm = {result.index: _latest(result) for result in comparison.results}
    counts: dict[str, int] = {}
    for tasks in by_arm.values():
        for task in tasks:
            counts[task] = counts.get(task, 0) + 1
    order = sorted(counts, key=lambda task: -counts[task])  # Stable: as logged among those that as many arms have.
    chosen = {}
    for index, tasks in by_arm.items():
        found = [tasks[task] for task in order if task in tasks][:limit]
        if found:
            chosen[index] = [Sample(seed=seed, rollout=view(record)) for seed, record in found]
    return chosen


def _latest(result: ArmResult) -> dict[str, tuple[int | None, dict[str, Any]]]:
    """Seed and record by task: held-out ones first, lowest seed first, the last record of a task within a seed."""
    found: dict[str, tuple[int | None, dict[str, Any]]] = {}
    for split in ("heldout", "train"):
        for seed, records in _records(result, split):
            for record in reversed(records):
                found.setdefault(str(record.get("task_id") or ""), (seed, record))
    return found


def _records(result: ArmResult, split: str) -> Iterator[tuple[int | None, list[dict[str, Any]]]]:
    for job in result.arm.jobs:
        if job.run is not None:
            yield job.seed, [record for record in job.run.rollouts if record.get("split") == split]
