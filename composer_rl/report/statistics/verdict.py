"""What a sweep says about each arm: better, worse, not separable from the baseline, or void.

Every arm is compared with the baseline by a two-sided paired t test; Holm's procedure holds the chance of any false
"better" or "worse" in the sweep at `alpha`. Printed intervals match the verdict: an arm's has the coverage of the Holm
step that decided it, 1 - alpha/(m - rank), so it excludes 0 exactly where the arm is better or worse. With one arm that
is the common 95% interval. The intervals are marginal: together they do not cover at 1 - alpha.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from composer_rl.report.statistics.paired import PairedDifference, holm_adjust, paired_difference, seeds_needed

_MANY_SEEDS = 1000
"""More seeds than this are not worth a figure."""


class VerdictKind(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    NOT_SEPARABLE = "not_separable"
    """The seeds so far do not tell the arm from the baseline. It does not say that they are equal."""
    VOID = "void"
    """There was nothing to compare; the scores are not looked at."""


@dataclass(frozen=True)
class ArmScores:
    """What the comparison needs to know of an arm."""

    scores: Mapping[int, float]
    """Score by seed; NaN for a run without one."""
    configuration: Mapping[str, Any] | None = None
    """Resolved settings without what differs between any two runs (seed, folders, names). Equal to the baseline's
    makes the verdict void; None is equal to nothing."""
    void_reason: str = ""
    """Why the arm's setting never acted, from the engagement table; empty where it did."""


@dataclass(frozen=True)
class Verdict:
    """One arm against the baseline."""

    kind: VerdictKind
    sentence: str
    """The verdict with its figures, to be shown as it is."""
    difference: PairedDifference | None = None
    """Arm minus baseline, with the interval of the sentence; its p is unadjusted. None where void."""
    adjusted_p: float | None = None
    """Holm's p over the arms that are not void. None where void or with fewer than two pairs."""
    seeds_needed: int | None = None
    """About how many seeds would separate such an effect; None where unknown or already separated."""


def judge(
    baseline: ArmScores,
    arms: Mapping[str, ArmScores],
    *,
    lower_is_better: bool = False,
    alpha: float = 0.05,
    resolution: float = 0.0,
) -> dict[str, Verdict]:
    """Verdicts of all arms of a sweep, in their order.

    The family is every arm that is not void, also those that have too few seeds to be tested: a crash does not make
    the other arms' verdicts easier. Judge once, with all seeds: adding seeds until an arm is better is not covered.

    Args:
        baseline: What the arms are compared with.
        arms: Arms by name, without the baseline.
        lower_is_better: For an objective that is minimised. Differences stay arm minus baseline.
        alpha: Chance of any false verdict in the sweep, two-sided, in (0, 1).
        resolution: Step between neighbouring values of a score, 1/num_tasks for a solve rate; 0 for continuous ones.

    Raises:
        ValueError: for an alpha outside (0, 1) or a bad resolution.
    """
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must be in (0, 1), got {alpha}")
    void = {name: reason for name, arm in arms.items() if (reason := _void_reason(baseline, arm))}
    tested = [name for name in arms if name not in void]
    p_values = [paired_difference(baseline.scores, arms[name].scores, resolution=resolution).p_value for name in tested]
    adjusted = dict(zip(tested, holm_adjust(p_values), strict=True))
    levels = dict(zip(tested, _deciding_levels(p_values, alpha), strict=True))
    verdicts = {}
    for name, arm in arms.items():
        if name in void:
            verdicts[name] = Verdict(VerdictKind.VOID, f"void: {void[name]}")
            continue
        level = levels[name]
        difference = paired_difference(baseline.scores, arm.scores, confidence=1 - level, resolution=resolution)
        if adjusted[name] <= alpha:
            better = (difference.mean < 0) == lower_is_better
            kind, needed = VerdictKind.BETTER if better else VerdictKind.WORSE, None
        else:
            kind, needed = VerdictKind.NOT_SEPARABLE, seeds_needed(difference, alpha=level)
        sentence = _sentence(kind, difference, num_comparisons=len(tested), needed=needed)
        verdicts[name] = Verdict(
            kind, sentence, difference, adjusted[name] if difference.num_pairs > 1 else None, needed
        )
    return verdicts


def _void_reason(baseline: ArmScores, arm: ArmScores) -> str:
    if arm.configuration is not None and arm.configuration == baseline.configuration:
        return "the same configuration as the baseline"
    return arm.void_reason


def _deciding_levels(p_values: list[float], alpha: float) -> list[float]:
    """The unadjusted level at which Holm's procedure decided each comparison; the step that stopped it decides all
    that follow."""
    levels = [alpha] * len(p_values)
    stopped_at = None
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        level = stopped_at or alpha / (len(p_values) - rank)
        if p_values[index] > level:
            stopped_at = level
        levels[index] = level
    return levels


def _sentence(kind: VerdictKind, difference: PairedDifference, *, num_comparisons: int, needed: int | None) -> str:
    dropped = _dropped(difference)
    num = difference.num_pairs
    if num == 0:
        return f"not separable: no seed has a score on both sides{dropped}"
    seeds = f"with {num} seed{'s' if num > 1 else ''}"
    if not difference.has_interval:
        return f"not separable {seeds} (difference {difference.mean:+z.3g}; {_no_interval(difference)}{dropped})"
    mean, low, high = _rounded(difference)
    figures = f"difference {mean}, {_percent(difference.confidence)} interval {low} to {high}"
    if num_comparisons > 1:
        figures += f", Holm over {num_comparisons} comparisons"
    if kind is not VerdictKind.NOT_SEPARABLE:
        return f"{kind} {seeds} ({figures}{dropped})"
    return f"not separable {seeds} ({figures}; {_seeds(needed)}{dropped})"


def _no_interval(difference: PairedDifference) -> str:
    if difference.num_pairs == 1:
        return "one pair has no interval"
    if not difference.seed_acted:
        return "both arms score the same on every seed, so the seed did not act and the runs count as one"
    return "it is the same on every seed, which says nothing about its spread"


def _seeds(needed: int | None) -> str:
    if needed is None:
        return "no number of seeds can be named"
    if needed > _MANY_SEEDS:
        return f"more than {_MANY_SEEDS} seeds would be needed"
    return f"about {needed} seeds would be needed"


def _dropped(difference: PairedDifference) -> str:
    if not difference.dropped_seeds:
        return ""
    plural = "s" if len(difference.dropped_seeds) > 1 else ""
    return f"; seed{plural} {', '.join(map(str, difference.dropped_seeds))} left out, without a score on both sides"


def _rounded(difference: PairedDifference) -> tuple[str, str, str]:
    """Mean, low and high with two digits of the interval's half width, and up to two more where an end would read 0."""
    half = (difference.high - difference.low) / 2
    decimals = max(0, 1 - math.floor(math.log10(half))) if half > 0 else 3
    nearest = min(abs(difference.low), abs(difference.high))
    if 0 < nearest < 0.5 * 10**-decimals:
        decimals = min(decimals + 2, -math.floor(math.log10(nearest)))
    mean, low, high = (f"{value:+z.{decimals}f}" for value in (difference.mean, difference.low, difference.high))
    return mean, low, high


def _percent(confidence: float) -> str:
    return f"{100 * confidence:.2f}".rstrip("0").rstrip(".") + "%"
