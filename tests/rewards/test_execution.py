"""The environment's grade times a discount per extra turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from composer_rl.rewards.base import as_trl
from composer_rl.rewards.execution import ExecutionReward
from composer_rl.types import Rollout


def test_a_later_turn_is_worth_less(make_rollout: Callable[..., Rollout]) -> None:
    rollouts = [make_rollout(1.0), make_rollout(0.0, 1.0), make_rollout(0.0, 0.0, 0.6), make_rollout(1.0, 0.0)]
    assert ExecutionReward()(rollouts) == pytest.approx([1.0, 0.5, 0.15, 0.0])
    assert ExecutionReward(turn_discount=1.0)(rollouts) == pytest.approx([1.0, 1.0, 0.6, 0.0])


def test_a_rollout_without_turns_counts_as_one(make_rollout: Callable[..., Rollout]) -> None:
    rollout = make_rollout(0.25)
    rollout.turns = []
    assert ExecutionReward()([rollout]) == [0.25]


@pytest.mark.parametrize("discount", [0.0, -0.5, 1.01, float("nan")])
def test_a_discount_outside_its_range_is_refused(discount: float) -> None:
    with pytest.raises(ValueError, match=r"turn_discount must be in \(0, 1\], got"):
        ExecutionReward(turn_discount=discount)


def test_without_rollouts_it_names_the_alternatives() -> None:
    assert ExecutionReward().uses_grades
    with pytest.raises(ValueError, match=r"needs the rollouts of an environment.*reward=answer_match"):
        as_trl(ExecutionReward())(prompts=["p"], completions=["c"], completion_ids=[[1]])


def test_the_discount_is_a_knob_that_acts_on_later_rewards(make_rollout: Callable[..., Rollout]) -> None:
    (knob,) = ExecutionReward().knobs()
    assert ExecutionReward(turn_discount=1.0).knobs() == []
    logged: dict[str, float] = {}
    rollouts = [make_rollout(1.0), make_rollout(0.0, 1.0), make_rollout(0.0, 0.0), make_rollout(0.0)]
    columns = {"prompts": ["p"] * 4, "completions": ["c"] * 4, "completion_ids": [[1]] * 4}
    as_trl(ExecutionReward())(**columns, rollout=rollouts, log_metric=logged.__setitem__)
    assert logged == {"execution/discounted_share": 0.25}
    assert knob.acted(logged[knob.metric])
