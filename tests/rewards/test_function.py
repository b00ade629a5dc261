"""A user's own function under TRL's signature, bound by the configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from composer_rl.config.build import build
from composer_rl.errors import ConfigError
from composer_rl.rewards.base import as_trl
from composer_rl.rewards.function import FunctionReward
from composer_rl.types import Rollout

MODULE = """
def exact(prompts, completions, completion_ids, answer, scale=1.0, **kwargs):
    return [scale * (text == wanted) for text, wanted in zip(completions, answer)]

def short(completions):
    return [-len(text) for text in completions]

async def later(completions, **kwargs):
    return [0.0]

def blind(prompts):
    return [0.0]
"""


@pytest.fixture
def user_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "their_rewards.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return "their_rewards"


def configured(package: str, name: str, *, trusted: bool = True, **bound: Any) -> FunctionReward:
    config = {
        "_target_": "composer_rl.rewards.function.FunctionReward",
        "function": {"_target_": f"{package}.{name}", "_partial_": True, **bound},
    }
    reward: FunctionReward = build(config, path="reward", trusted=[package] if trusted else [])
    return reward


def call(reward: FunctionReward, **columns: Any) -> list[float | None]:
    texts = ["4", "five"]
    return as_trl(reward)(prompts=["p", "q"], completions=texts, completion_ids=[[1], [2]], **columns)


def test_it_is_called_with_completions_and_columns(user_package: str) -> None:
    reward = configured(user_package, "exact", scale=2.0)
    assert reward.name == "exact"
    assert call(reward, answer=["4", "4"], extra=[0, 0]) == [2.0, 0.0]


def test_a_function_without_kwargs_gets_what_it_has_parameters_for(user_package: str) -> None:
    assert call(configured(user_package, "short"), answer=["4", "4"]) == [-1.0, -4.0]


def test_only_trusted_packages_are_imported(user_package: str) -> None:
    with pytest.raises(ConfigError, match=r"trusted_packages=\[their_rewards\]"):
        configured(user_package, "exact", trusted=False)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("later", "reward.function must be synchronous, got the coroutine function later"),
        ("blind", r"reward.function must have a parameter completions or take \*\*kwargs, got blind\(prompts\)"),
        ("exakt", "has no exakt"),
    ],
)
def test_a_function_that_cannot_work_is_refused_early(user_package: str, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configured(user_package, name)


def test_a_missing_column_is_named() -> None:
    def needs_answer(completions: Any, answer: Any) -> list[float]:
        return [0.0 for _ in completions]

    with pytest.raises(ValueError, match="reward needs_answer needs answer; the dataset has the columns: gold"):
        call(FunctionReward(function=needs_answer), gold=["4", "4"])


def test_forgetting_to_return_is_said() -> None:
    with pytest.raises(ValueError, match=r"reward .*<lambda>.* returned None, expected one score per completion"):
        call(FunctionReward(function=lambda completions: None))
    with pytest.raises(ValueError, match="function must be callable, got int"):
        FunctionReward(function=3)  # type: ignore[arg-type]


def test_it_scores_rollouts_too(make_rollout: Callable[..., Rollout]) -> None:
    reward = FunctionReward(function=lambda completions, rollouts: [float(r.solved) for r in rollouts])
    assert reward([make_rollout(1.0), make_rollout(0.0)]) == [1.0, 0.0]


def test_required_columns_are_the_parameters_that_only_a_column_can_fill() -> None:
    def scored(prompts: Any, completions: Any, task_id: Any, answer: Any, scale: float = 1.0) -> list[float]:
        return []

    assert FunctionReward(function=scored).required_columns() == {"answer": "function"}
    assert FunctionReward(function=lambda completions, **kwargs: []).required_columns() == {}
