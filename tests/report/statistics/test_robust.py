from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from composer_rl.report.statistics import (
    interquartile_mean,
    probability_of_improvement,
    stratified_bootstrap_interval,
    wilson_interval,
)

# Figures of rliable 1.2.0 with arch 7.2.0 and pandas 2.3.3 on these arrays, np.random.seed(0) first:
#   metrics.aggregate_iqm(SCORES)
#   library.get_interval_estimates({"a": SCORES}, lambda x: np.array([aggregate_iqm(x), aggregate_mean(x)]),
#                                  method="percentile", reps=50000)
#   metrics.probability_of_improvement(ARM[:, None], BASELINE[:, None]), and the same call with reps=20000
SCORES = np.array([[0.10, 0.62, 0.95], [0.35, 0.58, 0.91], [0.22, 0.80, 0.99], [0.41, 0.55, 0.40], [0.05, 0.71, 0.97]])
ARM = [0.62, 0.58, 0.80, 0.55, 0.71, 0.66]
BASELINE = [0.60, 0.58, 0.49, 0.63, 0.57]


def test_interquartile_mean_agrees_with_rliable_and_scipy():
    assert interquartile_mean(SCORES) == pytest.approx(0.5922222222222222, rel=1e-12)
    rng = np.random.default_rng(0)
    for size in range(1, 30):
        scores = rng.normal(size=size)
        assert interquartile_mean(scores) == pytest.approx(stats.trim_mean(scores, 0.25), rel=1e-12)


def test_stratified_bootstrap_agrees_with_rliable():
    found = stratified_bootstrap_interval(SCORES, num_resamples=20_000)
    assert (found.low, found.high) == pytest.approx((0.47444444, 0.68555556), abs=0.003)
    assert found.value == interquartile_mean(SCORES)
    found = stratified_bootstrap_interval(SCORES, np.mean, num_resamples=20_000)
    assert (found.low, found.high) == pytest.approx((0.48666667, 0.648), abs=0.003)


def test_one_task_agrees_with_scipy():
    column = SCORES[:, 1]
    expected = stats.bootstrap((column,), np.mean, method="percentile", n_resamples=20_000, rng=1).confidence_interval
    found = stratified_bootstrap_interval(column, np.mean, num_resamples=20_000)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.01)


def test_runs_are_drawn_within_a_task():
    # Tasks differ, runs do not: only a resampling across tasks could move the statistic.
    found = stratified_bootstrap_interval([[0.0, 1.0, 5.0]] * 4, np.mean, num_resamples=50)
    assert (found.low, found.value, found.high) == (2.0, 2.0, 2.0)


def test_one_run_bounds_nothing():
    found = stratified_bootstrap_interval([[0.2, 0.4]], np.mean)
    assert (found.low, found.high) == (-math.inf, math.inf)
    single = probability_of_improvement([1.0], [0.0, 0.5])
    assert (single.value, single.low, single.high) == (1.0, 0.0, 1.0)


def test_the_same_seed_gives_the_same_interval():
    first = stratified_bootstrap_interval(SCORES, np.median, num_resamples=200)
    assert stratified_bootstrap_interval(SCORES, np.median, num_resamples=200) == first
    assert stratified_bootstrap_interval(SCORES, np.median, num_resamples=200, seed=1) != first
    improvement = probability_of_improvement(ARM, BASELINE)
    assert probability_of_improvement(ARM, BASELINE) == improvement


def test_probability_of_improvement_agrees_with_rliable_and_scipy():
    found = probability_of_improvement(ARM, BASELINE, num_resamples=20_000)
    assert found.value == pytest.approx(0.75, rel=1e-12)
    assert (found.low, found.high) == pytest.approx((0.4, 1.0), abs=0.02)
    rng = np.random.default_rng(0)
    arm, baseline = rng.integers(0, 5, 9), rng.integers(0, 4, 7)
    expected = stats.mannwhitneyu(arm, baseline).statistic / 63
    assert probability_of_improvement(arm, baseline).value == pytest.approx(expected, rel=1e-12)
    assert probability_of_improvement(baseline, arm).value == pytest.approx(1 - expected, rel=1e-12)


def test_arms_that_do_not_overlap_are_no_proof():
    found = probability_of_improvement([1, 2, 3], [0, 0, 0.5, 0.7])
    assert (found.value, found.low, found.high) == pytest.approx((1.0, *wilson_interval(1.0, 3)), abs=1e-6)
    ties = probability_of_improvement([1, 1, 1], [1, 1])
    assert (ties.value, ties.low, ties.high) == pytest.approx((0.5, *wilson_interval(0.5, 2)), abs=1e-6)


@pytest.mark.parametrize("bad", [[], [0.1, math.nan], [0.1, math.inf]])
def test_bad_scores(bad):
    for call in (
        lambda: interquartile_mean(bad),
        lambda: stratified_bootstrap_interval(bad),
        lambda: probability_of_improvement(bad, [0.1]),
        lambda: probability_of_improvement([0.1], bad),
    ):
        with pytest.raises(ValueError, match="must"):
            call()


@pytest.mark.parametrize("arguments", [{"confidence": 0.0}, {"num_resamples": 0}])
def test_bad_arguments(arguments):
    with pytest.raises(ValueError, match="must be"):
        stratified_bootstrap_interval(SCORES, **arguments)
    with pytest.raises(ValueError, match="must be"):
        probability_of_improvement(ARM, BASELINE, **arguments)


def test_bad_shapes():
    with pytest.raises(ValueError, match="shape"):
        stratified_bootstrap_interval(np.zeros((2, 2, 2)))
    with pytest.raises(ValueError, match="flat"):
        probability_of_improvement(SCORES, BASELINE)
