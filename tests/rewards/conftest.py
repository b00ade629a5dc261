"""Rollouts by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from composer_rl.types import Rollout, RolloutTurn


@pytest.fixture
def make_rollout() -> Callable[..., Rollout]:
    """`grades` has one entry per turn; each turn samples `tokens` ids and a tool turn of `tool_tokens` follows."""

    def build(*grades: float, tokens: int = 3, tool_tokens: int = 2) -> Rollout:
        turns: list[RolloutTurn] = []
        env_mask: list[int] = []
        for index, grade in enumerate(grades):
            start = len(env_mask)
            env_mask += [1] * tokens
            is_last = index == len(grades) - 1
            observation = None if is_last else "ToolError: no tool put"
            turns.append(
                RolloutTurn(start=start, end=start + tokens, text=f"try {index}", reward=grade, observation=observation)
            )
            env_mask += [] if is_last else [0] * tool_tokens
        return Rollout(
            task_id="t",
            prompt_ids=[5],
            completion_ids=list(range(len(env_mask))),
            logprobs=[0.0] * len(env_mask),
            env_mask=env_mask,
            turns=turns,
            reward=grades[-1],
            stop_reason="solved" if grades[-1] >= 1.0 else "max_turns",
        )

    return build
