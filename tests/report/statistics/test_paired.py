from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from composer_rl.report.statistics import PairedDifference, holm_adjust, paired_difference, seeds_needed, t_interval

BASELINE = {0: 0.62, 1: 0.58, 2: 0.71, 3: 0.66, 4: 0.60}
ARM = {0: 0.69, 1: 0.60, 2: 0.70, 3: 0.75, 4: 0.68}


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.9875])
def test_agrees_with_scipy(confidence):
    expected = stats.ttest_rel(list(ARM.values()), list(BASELINE.values()))
    interval = expected.confidence_interval(confidence)
    found = paired_difference(BASELINE, ARM, confidence=confidence)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-12)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-12)
    assert found.mean == pytest.approx(0.05)
    assert found.std == pytest.approx(np.std([0.07, 0.02, -0.01, 0.09, 0.08], ddof=1))
    assert (found.num_pairs, found.dropped_seeds, found.confidence) == (5, (), confidence)
    assert found.has_interval


def test_many_samples_at_once_agree_with_one():
    differences = np.random.default_rng(0).normal(0.1, 1, (3, 4, 6))
    together = t_interval(differences)
    assert all(part.shape == (3, 4) for part in together)
    alone = paired_difference(dict.fromkeys(range(6), 0.0), dict(enumerate(differences[1, 2])))
    assert [part[1, 2] for part in together] == pytest.approx(
        [alone.mean, alone.low, alone.high, alone.std, alone.p_value], rel=1e-12
    )


def test_the_order_of_seeds_does_not_matter():
    assert paired_difference(BASELINE, dict(reversed(ARM.items()))) == paired_difference(BASELINE, ARM)


def test_a_shared_seed_effect_cancels():
    moved = {seed: 10.0 * seed for seed in BASELINE}
    found = paired_difference(
        {seed: BASELINE[seed] + moved[seed] for seed in BASELINE}, {seed: ARM[seed] + moved[seed] for seed in ARM}
    )
    assert found.low == pytest.approx(paired_difference(BASELINE, ARM).low)


@pytest.mark.parametrize("missing", [None, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", ["baseline", "arm"])
def test_seeds_without_a_partner_are_dropped_and_listed(side, missing):
    scores = {"baseline": dict(BASELINE), "arm": dict(ARM)}
    if missing is None:
        del scores[side][3]
    else:
        scores[side][3] = missing
    scores[side][9] = 0.5
    found = paired_difference(scores["baseline"], scores["arm"])
    assert found.dropped_seeds == (3, 9)
    assert found.num_pairs == 4
    assert found.mean == pytest.approx(0.04)


def test_no_pair_and_one_pair_bound_nothing():
    none = paired_difference({0: 0.1}, {1: 0.2})
    assert math.isnan(none.mean)
    assert (none.num_pairs, none.p_value, none.dropped_seeds) == (0, 1.0, (0, 1))
    one = paired_difference({0: 0.1}, {0: 0.3})
    assert one.mean == pytest.approx(0.2)
    assert math.isnan(one.std)
    for found in (none, one):
        assert (found.low, found.high) == (-math.inf, math.inf)
        assert not found.has_interval


@pytest.mark.parametrize("num_seeds", [2, 3, 20])
def test_equal_differences_are_no_proof(num_seeds):
    baseline = {seed: 0.8 + seed / 100 for seed in range(num_seeds)}
    found = paired_difference(baseline, {seed: score + 0.05 for seed, score in baseline.items()})
    assert (found.low, found.high, found.p_value) == (-math.inf, math.inf, 1.0)
    assert found.mean == pytest.approx(0.05)
    assert found.seed_acted


def test_equal_differences_of_rates_have_the_spread_of_one_step():
    found = paired_difference({0: 0.80, 1: 0.85, 2: 0.81}, {0: 0.85, 1: 0.90, 2: 0.86}, resolution=0.005)
    half = stats.t.ppf(0.975, 2) * 0.005 / math.sqrt(3)
    assert (found.low, found.high) == pytest.approx((0.05 - half, 0.05 + half))
    assert found.std == 0.005
    assert found.p_value == pytest.approx(2 * stats.t.sf(0.05 / (0.005 / math.sqrt(3)), 2))


def test_one_step_of_difference_is_not_separable():
    baseline = {seed: 0.8 + seed / 100 for seed in range(5)}
    found = paired_difference(baseline, {seed: score + 0.005 for seed, score in baseline.items()}, resolution=0.005)
    assert found.low < 0 < found.high


def test_the_resolution_does_not_touch_a_wider_spread():
    assert paired_difference(BASELINE, ARM, resolution=0.005) == paired_difference(BASELINE, ARM)


@pytest.mark.parametrize("resolution", [0.0, 0.005])
def test_a_seed_that_did_not_act_gives_no_interval(resolution):
    found = paired_difference(dict.fromkeys(range(5), 0.95), dict.fromkeys(range(5), 1.0), resolution=resolution)
    assert not found.seed_acted
    assert not found.has_interval
    assert (found.p_value, found.std) == (1.0, resolution)


def test_one_constant_side_is_a_pairing_like_another():
    found = paired_difference(dict.fromkeys(range(5), 0.0), ARM)
    assert found.seed_acted
    assert found.has_interval


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"confidence": 1.0}, "confidence must be in"),
        ({"confidence": math.nan}, "confidence must be in"),
        ({"resolution": -0.1}, "resolution must be"),
        ({"resolution": math.nan}, "resolution must be"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        paired_difference(BASELINE, ARM, **arguments)


def test_t_interval_needs_two_values():
    with pytest.raises(ValueError, match="at least 2"):
        t_interval([[1.0]])


def test_holm():
    # statsmodels 0.15.0: multipletests([0.01, 0.04, 0.03, 0.005, 0.2], method="holm")[1]
    assert holm_adjust([0.01, 0.04, 0.03, 0.005, 0.2]) == pytest.approx([0.04, 0.09, 0.09, 0.025, 0.2])
    assert holm_adjust([]) == []
    assert holm_adjust([0.3]) == [0.3]
    assert holm_adjust([0.9, 0.6]) == [1.0, 1.0]
    for bad in (math.nan, -0.1, 1.1):
        with pytest.raises(ValueError, match="p_values must be in"):
            holm_adjust([0.5, bad])


def difference(effect: float, *, std: float = 1.0, num_pairs: int = 5) -> PairedDifference:
    return PairedDifference(effect * std, -1.0, 1.0, std, num_pairs, 0.5, (), 0.95, True)


@pytest.mark.parametrize(
    ("effect", "alpha", "power", "expected"),
    [
        # statsmodels 0.15.0, rounded up:
        # TTestPower().solve_power(effect_size=effect, alpha=alpha, power=power, alternative="two-sided")
        (0.3, 0.05, 0.8, 90),
        (1.0, 0.05, 0.8, 10),
        (2.5, 0.05, 0.8, 4),
        (0.05, 0.0125, 0.8, 4464),
        (0.5, 0.0125, 0.9, 61),
    ],
)
def test_seeds_needed(effect, alpha, power, expected):
    assert seeds_needed(difference(effect), alpha=alpha, power=power) == expected
    assert seeds_needed(difference(-effect, std=0.02), alpha=alpha, power=power) == expected


def test_extreme_effects():
    assert seeds_needed(difference(1e6)) == 2
    assert 780e6 < seeds_needed(difference(1e-4)) < 790e6
    assert seeds_needed(difference(1e-9)) is None


@pytest.mark.parametrize(
    ("baseline", "arm"),
    [({}, {}), ({0: 1.0}, {0: 2.0}), (BASELINE, BASELINE), ({0: 1.0, 1: 2.0}, {0: 2.0, 1: 3.0})],
)
def test_seeds_needed_is_unknown(baseline, arm):
    assert seeds_needed(paired_difference(baseline, arm)) is None


@pytest.mark.parametrize("arguments", [{"power": 1.0}, {"alpha": 0.0}])
def test_seeds_needed_bad_arguments(arguments):
    with pytest.raises(ValueError, match="must be in"):
        seeds_needed(difference(1.0), **arguments)


def test_importing_it_is_cheap():
    code = "import sys, composer_rl.report.statistics; print({'numpy', 'scipy', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
