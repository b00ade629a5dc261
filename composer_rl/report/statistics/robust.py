"""Aggregates that one lucky or broken seed does not carry, with percentile bootstrap intervals.

Source: R. Agarwal et al., 2021, Deep Reinforcement Learning at the Edge of the Statistical Precipice (arXiv
2108.13264), sections 4.1 and 4.3; figures agree with its library, rliable. These describe; verdicts of a sweep come
from paired t intervals, because a percentile bootstrap over five seeds is too narrow (docs/statistics.md).

Departure from the paper: where no resample differs from another (the arms do not overlap, or everything ties),
`probability_of_improvement` answers with a Wilson interval instead of one of zero width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from composer_rl.report.statistics.rates import wilson_interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Estimate:
    """A statistic of scores with its interval, in the statistic's unit."""

    value: float
    low: float
    high: float


def interquartile_mean(scores: ArrayLike) -> float:
    """Mean of the middle half of all scores: the lowest and the highest quarter, rounded down, are left out.

    Args:
        scores: Finite scores of any shape, taken together; `(num_runs, num_tasks)` as in the paper. Fewer than four
            leave nothing out.

    Raises:
        ValueError: for no scores, or NaN or infinite ones.
    """
    import numpy as np

    ordered = np.sort(_finite(scores, "scores"), axis=None)
    cut = ordered.size // 4
    return float(ordered[cut : ordered.size - cut].mean())


def stratified_bootstrap_interval(
    scores: ArrayLike,
    statistic: Callable[[np.ndarray], float] = interquartile_mean,
    *,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """A statistic with its percentile bootstrap interval, runs drawn with replacement within each task.

    Args:
        scores: `(num_runs, num_tasks)`, or `(num_runs,)` for one task; every task has every run.
        statistic: Takes an array of the shape of `scores`.
        confidence: Two-sided coverage, in (0, 1). The real one is lower for few runs.
        num_resamples: Bootstrap samples, at least 1.
        seed: Of the resampling; the same arguments give the same interval.

    Returns:
        The statistic of `scores` and its interval, -inf to inf for a single run.

    Raises:
        ValueError: for another shape, no scores, scores that are not finite, or arguments out of range.
    """
    import numpy as np

    _check(confidence, num_resamples)
    values = _finite(scores, "scores")
    if values.ndim not in (1, 2):
        raise ValueError(f"scores must have the shape (num_runs, num_tasks) or (num_runs,), got {values.shape}")
    value = float(statistic(values))
    if len(values) == 1:
        return Estimate(value, -math.inf, math.inf)
    rng = np.random.default_rng(seed)
    draws = [
        statistic(np.take_along_axis(values, rng.integers(len(values), size=values.shape), axis=0))
        for _ in range(num_resamples)
    ]
    return Estimate(value, *_percentiles(draws, confidence))


def probability_of_improvement(
    arm: Sequence[float],
    baseline: Sequence[float],
    *,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """Probability that a run of the arm scores higher than a run of the baseline, ties counted as one half.

    The Mann-Whitney U of the arm divided by the number of pairs (eq. 2 of the paper, for one task). Runs are not
    paired: common seeds are of no use to it. 1 minus it is the probability that the arm scores lower.

    Args:
        arm: Finite scores, one a run.
        baseline: Finite scores, one a run; not necessarily as many.
        confidence: Two-sided coverage, in (0, 1). The real one is lower for few runs.
        num_resamples: Bootstrap samples, at least 1; both sides are drawn independently.
        seed: Of the resampling.

    Returns:
        The probability and its interval: 0 to 1 for fewer than two runs on a side, and Wilson's for as many trials as
        the smaller side has runs where every resample agrees.

    Raises:
        ValueError: for an empty side, scores that are not finite, or arguments out of range.
    """
    import numpy as np
    from scipy.special import ndtri

    _check(confidence, num_resamples)
    above, below = _finite(arm, "arm"), _finite(baseline, "baseline")
    if above.ndim != 1 or below.ndim != 1:
        raise ValueError(f"arm and baseline must be flat, got the shapes {above.shape} and {below.shape}")
    wins = (np.sign(above[:, None] - below[None, :]) + 1) / 2
    value = float(wins.mean())
    smaller = min(wins.shape)
    if smaller < 2:
        return Estimate(value, 0.0, 1.0)
    rng = np.random.default_rng(seed)
    draws_above = rng.multinomial(len(above), np.full(len(above), 1 / len(above)), size=num_resamples)
    draws_below = rng.multinomial(len(below), np.full(len(below), 1 / len(below)), size=num_resamples)
    draws = np.einsum("ra,ab,rb->r", draws_above, wins, draws_below, optimize=True) / wins.size
    if np.ptp(wins) == 0:
        return Estimate(value, *wilson_interval(value, smaller, z=float(ndtri((1 + confidence) / 2))))
    return Estimate(value, *_percentiles(draws, confidence))


def _percentiles(draws: Any, confidence: float) -> tuple[float, float]:
    import numpy as np

    low, high = np.percentile(draws, [50 * (1 - confidence), 50 * (1 + confidence)])
    return float(low), float(high)


def _finite(scores: ArrayLike, name: str) -> np.ndarray:
    import numpy as np

    values = np.asarray(scores, dtype=float)
    if values.size == 0:
        raise ValueError(f"{name} must not be empty")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite; leave out runs without a score")
    return values


def _check(confidence: float, num_resamples: int) -> None:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    if num_resamples < 1:
        raise ValueError(f"num_resamples must be at least 1, got {num_resamples}")
