"""A run that could not learn is told from one that did, from the log of its steps alone."""

from __future__ import annotations

from typing import Any

import pytest

from composer_rl.stages.run_warnings import training_warnings

NAN = float("nan")
FLAT = {"grad_norm": 0.0, "reward": 0.5, "frac_reward_zero_std": 1.0}
LEARNT = {"grad_norm": 0.1, "reward": 0.5, "frac_reward_zero_std": 0.5}
OTHER_TERMS = {**FLAT, "grad_norm": 1e-4}
UNSCORED = {"grad_norm": 0.0, "reward": NAN, "frac_reward_zero_std": 0.0}


@pytest.mark.parametrize(
    ("history", "warning"),
    [
        ([FLAT] * 150, "no step had a gradient: every group had the same reward in all 150 steps"),
        ([FLAT], "no step had a gradient: every group had the same reward in the only step"),
        ([UNSCORED] * 3, "no step had a gradient: the reward scored no completion (None) in all 3 steps"),
        ([{**UNSCORED, "reward": None}, FLAT], "no step had a gradient: every group had the same reward"),
        ([OTHER_TERMS] * 3, "the reward taught nothing: every group had the same reward in all 3 steps"),
        ([{**LEARNT, "grad_norm": 0.0}] * 2, "no step had a gradient: the gradient was 0 in all 2 steps"),
    ],
)
def test_a_run_that_could_not_learn(history: list[dict[str, Any]], warning: str) -> None:
    (found,) = training_warnings([{"heldout/solve_rate": 0.5}, *history, {"train_runtime": 3.0}])
    assert found.startswith(warning)


@pytest.mark.parametrize("history", [[], [FLAT, LEARNT], [UNSCORED, LEARNT], [{"grad_norm": NAN, "reward": 1.0}]])
def test_a_run_that_could(history: list[dict[str, Any]]) -> None:
    assert training_warnings(history) == []
