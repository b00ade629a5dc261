"""Mean curves over seeds with a bootstrap band, for figures.

A band is pointwise: it says where the mean may lie at one step, not that a whole curve stays inside. Over few seeds it
is too narrow (docs/statistics.md), so no verdict is read off it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Band:
    """One value a step, NaN where nothing is known."""

    mean: tuple[float, ...]
    """Mean over the curves that have the step."""
    low: tuple[float, ...]
    """Lower percentile of the resampled means; NaN where fewer than two curves have the step."""
    high: tuple[float, ...]
    num_curves: tuple[int, ...]
    """Curves that have the step. A mean over fewer curves than the step before may jump for that reason alone."""


def bootstrap_band(
    curves: Sequence[Sequence[float]], *, confidence: float = 0.95, num_resamples: int = 1000, seed: int = 0
) -> Band:
    """Mean and percentile bootstrap band at each step, whole curves drawn with replacement.

    Args:
        curves: One curve a seed, aligned by position; NaN or an early end where a point is missing.
        confidence: Two-sided coverage of the band at a step, in (0, 1).
        num_resamples: Bootstrap samples, at least 1.
        seed: Of the resampling; the same arguments give the same band.

    Returns:
        A band as long as the longest curve.

    Raises:
        ValueError: for arguments out of range or an infinite point.
    """
    import numpy as np

    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    if num_resamples < 1:
        raise ValueError(f"num_resamples must be at least 1, got {num_resamples}")
    num_steps = max(map(len, curves), default=0)
    if num_steps == 0:
        return Band((), (), (), ())
    values = np.full((len(curves), num_steps), np.nan)
    for row, curve in zip(values, curves, strict=True):
        row[: len(curve)] = curve
    if np.isinf(values).any():
        raise ValueError("curves must not hold infinite points; NaN is a missing one")
    present = ~np.isnan(values)
    filled = np.where(present, values, 0.0)
    count = present.sum(axis=0)
    draws = np.random.default_rng(seed).multinomial(
        len(curves), np.full(len(curves), 1 / len(curves)), size=num_resamples
    )
    with np.errstate(invalid="ignore"):
        mean = filled.sum(axis=0) / count
        # A resample that drew no curve with a step has no mean there, and does not count.
        resampled = (draws @ filled) / (draws @ present.astype(float))
    low, high = np.full((2, num_steps), np.nan)
    bounded = count >= 2
    if bounded.any():
        quantiles = [50 * (1 - confidence), 50 * (1 + confidence)]
        low[bounded], high[bounded] = np.nanpercentile(resampled[:, bounded], quantiles, axis=0)
    return Band(tuple(mean.tolist()), tuple(low.tolist()), tuple(high.tolist()), tuple(count.tolist()))
