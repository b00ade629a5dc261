"""pass@k by hand and by enumeration; intervals that cover."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from composer_rl.stages.evaluations.checkpoint import CheckpointEvaluation, mean_with_interval, pass_at_k
from composer_rl.types import Rollout, RolloutTurn


@pytest.mark.parametrize(("n", "c", "k"), [(5, 2, 1), (5, 2, 3), (8, 0, 4), (8, 8, 4), (4, 3, 2)])
def test_pass_at_k_equals_enumeration(n: int, c: int, k: int) -> None:
    samples = [True] * c + [False] * (n - c)
    draws = list(combinations(samples, k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(any(draw) for draw in draws) / len(draws))


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, 1, 5), (4, 1, 0), (4, -1, 1)])
def test_pass_at_k_refuses_impossible_counts(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass_at_k needs"):
        pass_at_k(n, c, k)


def episode(task_id: str, *rewards: float) -> Rollout:
    turns = [RolloutTurn(start=0, end=1, text="", reward=reward) for reward in rewards]
    return Rollout(
        task_id=task_id,
        prompt_ids=[],
        completion_ids=[],
        logprobs=[],
        env_mask=[],
        turns=turns,
        reward=rewards[-1],
        stop_reason="max_turns",
    )


def test_estimates_by_hand() -> None:
    rollouts = [episode("a", 1.0), episode("a", 0.0, 1.0), episode("b", 0.0, 0.0), episode("b", 0.0, 1.0)]
    estimates = CheckpointEvaluation(k=[1, 2], samples_per_task=2).estimates(rollouts)
    assert estimates["evaluate/pass@1"].value == pytest.approx(0.25)
    assert estimates["evaluate/pass@2"].value == pytest.approx(0.5)
    assert estimates["evaluate/recovery_rate"].value == pytest.approx(0.75)
    assert estimates["evaluate/pass@1"].low <= 0.25 <= estimates["evaluate/pass@1"].high


def test_a_constant_sample_has_a_point_interval() -> None:
    estimate = mean_with_interval([1.0, 1.0, 1.0], confidence=0.95)
    assert (estimate.low, estimate.value, estimate.high) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": []}, "k must be"),
        ({"k": [0]}, "k must be"),
        ({"samples_per_task": 4}, "at least the largest k=8"),
        ({"num_tasks": 1}, "num_tasks must be at least 2"),
        ({"confidence": 1.0}, "confidence must be in"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CheckpointEvaluation(**settings)
