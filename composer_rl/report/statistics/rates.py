"""Intervals for rates over independent trials."""

from __future__ import annotations

import math


def wilson_interval(rate: float, num_trials: float, *, z: float = 1.959964) -> tuple[float, float]:
    """Wilson score interval of a success rate (E. B. Wilson, 1927, JASA 22), by default for 95% coverage.

    Args:
        rate: Successes divided by trials, in [0, 1].
        num_trials: Independent trials, at least 0; without any the interval is (0, 1).
        z: Standard normal quantile of the two-sided coverage.

    Raises:
        ValueError: for a rate outside [0, 1] or a negative count.
    """
    if not 0.0 <= rate <= 1.0:
        raise ValueError(f"rate must be in [0, 1], got {rate}")
    if not num_trials >= 0:
        raise ValueError(f"num_trials must be at least 0, got {num_trials}")
    if num_trials == 0:
        return 0.0, 1.0
    weight = z * z / num_trials
    center = (rate + weight / 2) / (1 + weight)
    half = z / (1 + weight) * math.sqrt(rate * (1 - rate) / num_trials + weight / (4 * num_trials))
    return max(0.0, center - half), min(1.0, center + half)
