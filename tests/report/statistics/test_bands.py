from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy import stats

from composer_rl.report.statistics import Band, bootstrap_band

NAN = math.nan


def test_a_band_agrees_with_scipy():
    curves = np.random.default_rng(0).normal(size=(20, 3)).cumsum(axis=1)
    band = bootstrap_band(curves.tolist(), num_resamples=20_000)
    expected = stats.bootstrap((curves,), np.mean, axis=0, method="percentile", n_resamples=20_000, rng=1)
    assert band.mean == pytest.approx(tuple(curves.mean(axis=0)))
    assert band.low == pytest.approx(tuple(expected.confidence_interval.low), abs=0.03)
    assert band.high == pytest.approx(tuple(expected.confidence_interval.high), abs=0.03)
    assert band.num_curves == (20, 20, 20)


def test_missing_points():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        band = bootstrap_band([[1.0, 2.0, NAN, 4.0], [3.0, NAN, NAN], [5.0, 6.0, NAN]])
    assert band.mean == pytest.approx((3.0, 4.0, NAN, 4.0), nan_ok=True)
    assert band.num_curves == (3, 2, 0, 1)
    assert band.low[:2] == (1.0, 2.0)
    assert band.high[:2] == (5.0, 6.0)
    assert all(math.isnan(end) for end in band.low[2:] + band.high[2:])


def test_whole_curves_are_drawn():
    # Curves that mirror each other: the mean of a resample at one step fixes that at the other.
    band = bootstrap_band([[0.0, 1.0], [1.0, 0.0], [0.25, 0.75]])
    assert band.low[0] == pytest.approx(1 - band.high[1])


def test_it_is_deterministic():
    curves = np.random.default_rng(0).normal(size=(5, 4)).tolist()
    assert bootstrap_band(curves) == bootstrap_band(curves)
    assert bootstrap_band(curves) != bootstrap_band(curves, seed=1)


@pytest.mark.parametrize("curves", [[], [[]], [[], []]])
def test_no_points(curves):
    assert bootstrap_band(curves) == Band((), (), (), ())


@pytest.mark.parametrize(
    ("curves", "arguments"), [([[math.inf]], {}), ([[1.0]], {"confidence": 1.0}), ([[1.0]], {"num_resamples": 0})]
)
def test_bad_input(curves, arguments):
    with pytest.raises(ValueError, match="must"):
        bootstrap_band(curves, **arguments)
