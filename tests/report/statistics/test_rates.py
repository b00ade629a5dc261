import math

import pytest

from composer_rl.report.statistics import wilson_interval


@pytest.mark.parametrize(
    ("rate", "num", "low", "high"),
    [
        (0.5, 10, 0.23659, 0.76341),
        (0.0, 10, 0.0, 0.27753),
        (1.0, 10, 0.72247, 1.0),
        (0.81, 263, 0.75826, 0.85282),
    ],
)
def test_known_intervals(rate, num, low, high):
    assert wilson_interval(rate, num) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize(("rate", "num"), [(0.33, 200), (0.02, 50), (0.765, 200)])
def test_the_ends_solve_the_score_equation(rate, num):
    for end in wilson_interval(rate, num, z=1.5):
        assert abs(end - rate) == pytest.approx(1.5 * math.sqrt(end * (1 - end) / num), rel=1e-9)


def test_no_trials_say_nothing():
    assert wilson_interval(0.5, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("rate", "num"), [(-0.1, 5), (1.1, 5), (0.5, -1), (float("nan"), 5), (0.5, float("nan"))])
def test_bad_input(rate, num):
    with pytest.raises(ValueError, match="must be"):
        wilson_interval(rate, num)
