"""Differences between two arms of a sweep that ran the same seeds.

The interval is Student's t on the differences per seed ("Student", 1908, Biometrika 6): what a seed does to both arms
alike (the order of tasks, an easy draw) cancels. docs/statistics.md has its measured coverage and where it fails.

A spread of zero is no proof. Two rules keep a handful of coinciding scores from reading as certainty:

- The standard deviation is not taken below `resolution`, one step between neighbouring values of a score (1/num_tasks
  for a solve rate): a smaller spread cannot be seen in such scores.
- Without a `resolution`, differences that are all the same have no interval (-inf to inf) and p = 1. The same goes,
  with or without, where neither arm varied over seeds: then the seed did not act, and n copies of one measurement say
  nothing about another seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

_SAME = 1e-9
"""Scores closer than this share of the largest one are the same; 0.85 - 0.80 and 0.95 - 0.90 differ by 1e-16."""
_MAX_SEEDS = 10**9


@dataclass(frozen=True)
class PairedDifference:
    """Arm minus baseline over the seeds that both have, in the unit of the score."""

    mean: float
    """Mean difference; NaN without pairs."""
    low: float
    """Lower end of the interval; -inf where nothing bounds it (fewer than two pairs, no visible spread)."""
    high: float
    """Upper end of the interval; inf where nothing bounds it."""
    std: float
    """Sample standard deviation (n - 1) of the differences, not below the resolution; NaN below two pairs."""
    num_pairs: int
    """Seeds with a finite score on both sides."""
    p_value: float
    """Two-sided p of "no difference", not adjusted for other comparisons; 1 where there is no interval."""
    dropped_seeds: tuple[int, ...]
    """Seeds without a partner: missing, NaN or infinite on either side. A run that diverged is among them, so an arm
    that keeps only its lucky seeds shows here."""
    confidence: float
    """Coverage of the interval, in (0, 1)."""
    seed_acted: bool
    """False where both arms scored the same on every one of two or more seeds."""

    @property
    def has_interval(self) -> bool:
        """True where the data bound the difference."""
        return math.isfinite(self.low) and math.isfinite(self.high)


def paired_difference(
    baseline: Mapping[int, float], arm: Mapping[int, float], *, confidence: float = 0.95, resolution: float = 0.0
) -> PairedDifference:
    """Mean of arm - baseline over common seeds with its t interval.

    Args:
        baseline: Score by seed.
        arm: Score by seed, same unit.
        confidence: Two-sided coverage, in (0, 1).
        resolution: Step between neighbouring values of a score, 1/num_tasks for a solve rate; 0 for continuous ones.

    Raises:
        ValueError: for a confidence outside (0, 1) or a resolution that is negative or not finite.
    """
    import numpy as np

    _check(confidence, resolution)
    usable = [{seed for seed, score in scores.items() if math.isfinite(score)} for scores in (baseline, arm)]
    seeds = sorted(usable[0] & usable[1])
    dropped = tuple(sorted((baseline.keys() | arm.keys()) - set(seeds)))
    if not seeds:
        return PairedDifference(math.nan, -math.inf, math.inf, math.nan, 0, 1.0, dropped, confidence, True)
    before = np.array([baseline[seed] for seed in seeds], dtype=float)
    after = np.array([arm[seed] for seed in seeds], dtype=float)
    differences = after - before
    if len(seeds) == 1:
        mean = float(differences[0])
        return PairedDifference(mean, -math.inf, math.inf, math.nan, 1, 1.0, dropped, confidence, True)
    same = _SAME * max(np.abs(before).max(), np.abs(after).max())
    seed_acted = bool(max(np.ptp(before), np.ptp(after)) > same)
    if not seed_acted or (resolution == 0 and np.ptp(differences) <= same):
        std = max(float(differences.std(ddof=1)) if seed_acted else 0.0, resolution)
        mean = float(differences.mean())
        return PairedDifference(mean, -math.inf, math.inf, std, len(seeds), 1.0, dropped, confidence, seed_acted)
    mean, low, high, std, p_value = (
        float(value) for value in t_interval(differences, confidence=confidence, resolution=resolution)
    )
    return PairedDifference(mean, low, high, std, len(seeds), p_value, dropped, confidence, True)


def t_interval(
    differences: ArrayLike, *, confidence: float = 0.95, resolution: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Student's t interval of the mean over the last axis, for many samples at once.

    Args:
        differences: Finite values, `(..., n)` with n at least 2.
        confidence: Two-sided coverage, in (0, 1).
        resolution: Floor of the standard deviation, in the unit of the differences.

    Returns:
        mean, low, high, standard deviation and two-sided p, each `(...)`. Without any spread or floor the interval is
        the mean itself and p is 0, or 1 at a mean of 0; `paired_difference` does not report those.

    Raises:
        ValueError: for fewer than two values, a confidence outside (0, 1) or a bad resolution.
    """
    import numpy as np
    from scipy.special import stdtr, stdtrit

    _check(confidence, resolution)
    values = np.asarray(differences, dtype=float)
    n = values.shape[-1]
    if n < 2:
        raise ValueError(f"a t interval needs at least 2 differences, got {n}")
    mean = values.mean(axis=-1)
    std = np.maximum(values.std(axis=-1, ddof=1), resolution)
    error = std / math.sqrt(n)
    half = stdtrit(n - 1, (1 + confidence) / 2) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(mean == 0, 0.0, np.abs(mean) / error)
    return mean, mean - half, mean + half, std, 2 * stdtr(n - 1, -t)


def holm_adjust(p_values: Sequence[float]) -> list[float]:
    """Adjusted p of each comparison of a family, in the order given (S. Holm, 1979, Scand. J. Statist. 6).

    A comparison is significant at family-wise level alpha where its adjusted p is at most alpha, however the
    comparisons depend on each other (arms share their baseline).

    Raises:
        ValueError: for a p outside [0, 1], NaN included.
    """
    for p in p_values:
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"p_values must be in [0, 1], got {p}")
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def seeds_needed(difference: PairedDifference, *, power: float = 0.8, alpha: float = 0.05) -> int | None:
    """About how many seeds a paired t test needs to separate an effect and spread like the observed ones.

    The smallest n whose power, from the noncentral t with n - 1 degrees of freedom and noncentrality
    sqrt(n) * |mean| / std, reaches `power` (J. Cohen, 1988, Statistical Power Analysis, ch. 2). A rough guide: mean and
    std come from few seeds, and a true effect of zero answers with some number too (docs/statistics.md).

    Args:
        difference: What was observed.
        power: Wanted probability of separating the effect, in (0, 1).
        alpha: Two-sided level of the test, in (0, 1).

    Returns:
        At least 2; None where the mean is 0, there are fewer than two pairs, the spread is unknown, or the number
        exceeds a billion.

    Raises:
        ValueError: for a power or alpha outside (0, 1).
    """
    from scipy.special import ndtri

    for name, value in (("power", power), ("alpha", alpha)):
        if not 0.0 < value < 1.0:
            raise ValueError(f"{name} must be in (0, 1), got {value}")
    if not difference.has_interval or difference.mean == 0 or not difference.std > 0:
        return None
    effect = abs(difference.mean) / difference.std
    normal = max(0.0, float(ndtri(1 - alpha / 2) + ndtri(power))) / effect
    if normal**2 > _MAX_SEEDS:
        return None
    # The t test needs a few seeds more than the normal approximation says.
    n = max(2, math.floor(normal**2))
    while _power(n, effect, alpha) < power:
        n += 1
    return n


def _power(n: int, effect: float, alpha: float) -> float:
    """Probability that a two-sided paired t test with n pairs separates `effect` standard deviations."""
    from scipy.special import nctdtr, stdtrit

    critical = stdtrit(n - 1, 1 - alpha / 2)
    center = math.sqrt(n) * effect
    return float(1 - nctdtr(n - 1, center, critical) + nctdtr(n - 1, center, -critical))


def _check(confidence: float, resolution: float) -> None:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    if not 0.0 <= resolution < math.inf:
        raise ValueError(f"resolution must be finite and at least 0, got {resolution}")
