"""Weighted sums of named rewards, alone and as TRL's separate functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from composer_rl.config.build import build
from composer_rl.errors import ConfigError
from composer_rl.rewards.answer_match import AnswerMatch
from composer_rl.rewards.base import RewardBatch, RewardFunction, as_trl_functions
from composer_rl.rewards.execution import ExecutionReward
from composer_rl.rewards.weighted import WeightedPart, WeightedReward
from composer_rl.types import Rollout


@dataclass(kw_only=True)
class Fixed(RewardFunction):
    scores: tuple[float | None, ...]

    def score(self, batch: RewardBatch) -> list[float | None]:
        return list(self.scores)


def test_the_sum_is_over_the_parts_that_scored(make_rollout: Callable[..., Rollout]) -> None:
    reward = WeightedReward(
        functions={
            "a": WeightedPart(reward=Fixed(scores=(1.0, None, None)), weight=2.0),
            "b": WeightedPart(reward=Fixed(scores=(0.5, 3.0, None)), weight=-1.0),
        }
    )
    assert reward([make_rollout(1.0)] * 3) == [1.5, -3.0, None]


def test_parts_are_flat_with_multiplied_weights(make_rollout: Callable[..., Rollout]) -> None:
    inner = WeightedReward(
        functions={
            "x": WeightedPart(reward=Fixed(scores=(1.0,)), weight=0.5),
            "y": WeightedPart(reward=Fixed(scores=(2.0,))),
        }
    )
    outer = WeightedReward(
        functions={"inner": WeightedPart(reward=inner, weight=4.0), "env": WeightedPart(reward=ExecutionReward())}
    )
    functions, weights = as_trl_functions(outer)
    assert [function.__name__ for function in functions] == ["inner.x", "inner.y", "env"]
    assert weights == [2.0, 4.0, 1.0]
    rollouts = [make_rollout(0.5)]
    scores = [
        function(prompts=[0], completions=[0], completion_ids=[[1]], rollout=rollouts)[0] for function in functions
    ]
    total = sum(weight * score for weight, score in zip(weights, scores, strict=True))
    assert outer(rollouts) == [total] == [10.5]


def test_it_uses_grades_when_a_part_does() -> None:
    assert WeightedReward(functions={"env": WeightedPart(reward=ExecutionReward())}).uses_grades
    assert not WeightedReward(functions={"f": WeightedPart(reward=Fixed(scores=()))}).uses_grades


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({}, "must name at least one reward function"),
        ({"a/b": {"reward": {"_target_": "composer_rl.rewards.execution.ExecutionReward"}}}, "without '/', got 'a/b'"),
        (
            {"a": {"weight": 0.0, "reward": {"_target_": "composer_rl.rewards.execution.ExecutionReward"}}},
            "reward.functions.a.weight must be a number other than 0, got 0.0",
        ),
        ({"a": {"wieght": 1.0}}, "did you mean weight"),
        ({"a": {"reward": {"_target_": "composer_rl.po.base.PolicyObjective"}}}, "reward.functions.a.reward"),
    ],
)
def test_bad_configuration_names_the_part(functions: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build({"_target_": "composer_rl.rewards.weighted.WeightedReward", "functions": functions}, path="reward")


def test_knobs_of_the_parts_have_their_names_on_the_command_line() -> None:
    inner = WeightedReward(functions={"x": WeightedPart(reward=ExecutionReward())})
    reward = WeightedReward(
        functions={"env": WeightedPart(reward=ExecutionReward()), "deep": WeightedPart(reward=inner)}
    )
    assert [knob.under("reward").name for knob in reward.knobs()] == [
        "reward.functions.env.reward.turn_discount",
        "reward.functions.deep.reward.functions.x.reward.turn_discount",
    ]


def test_required_columns_name_the_part_that_needs_them() -> None:
    part = WeightedPart(reward=AnswerMatch(column="solution"))
    assert WeightedReward(functions={"right": part}).required_columns() == {"solution": "functions.right.reward.column"}
