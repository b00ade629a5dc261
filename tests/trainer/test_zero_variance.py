"""Which rows are computed, and by what TRL's loss over them is scaled."""

from __future__ import annotations

import math

import pytest
import torch

from composer_rl.trainer.zero_variance import (
    ACTIVE_KEY,
    active_rows,
    rows_with_variance,
    skip_rule,
    trim_padding,
    window_scales,
)

NAN = math.nan


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([1.0, 1.0, 0.0, 1.0], [0, 0, 1, 1]),
        ([1 / 3, 1 / 3, 1 / 3, 1 / 3], [0, 0, 0, 0]),
        ([NAN, 1.0, NAN, NAN], [0, 0, 0, 0]),
        ([NAN, NAN, 0.0, 0.5], [0, 0, 1, 1]),
    ],
)
def test_rows_with_variance(rewards: list[float], expected: list[int]) -> None:
    assert rows_with_variance(torch.tensor(rewards), num_generations=2).tolist() == expected


def batch(active: list[int], lengths: list[int]) -> dict[str, torch.Tensor]:
    width = max(lengths)
    mask = torch.tensor([[1] * n + [0] * (width - n) for n in lengths])
    return {ACTIVE_KEY: torch.tensor(active), "completion_mask": mask, "completion_ids": mask.clone()}


@pytest.mark.parametrize(
    ("loss_type", "mode", "expected"),
    [
        ("dr_grpo", "skip", [0.5, 0.0]),  # 1 of 2 rows; none of 2
        ("grpo", "drop", [2.0, 0.0]),  # 1 active row of the window's 1, times 2 micro-batches
        ("bnpo", "skip", [0.25, 0.0]),  # 1 of 4 tokens
        ("bnpo", "drop", [1.0, 0.0]),
        ("dapo", "skip", [1.0, 0.0]),
        ("cispo", "drop", [1.0, 0.0]),
    ],
)
def test_window_scales_by_hand(loss_type: str, mode: str, expected: list[float]) -> None:
    window = [batch([1, 0], [1, 3]), batch([0, 0], [2, 2])]
    scales = window_scales(window, loss_type=loss_type, mode=mode)  # type: ignore[arg-type]
    assert [scale.item() for scale in scales] == expected


def test_tool_tokens_do_not_count_in_the_local_divisor() -> None:
    only = batch([1, 0], [4, 4]) | {"tool_mask": torch.tensor([[1, 0, 0, 1], [1, 1, 1, 1]])}
    (scale,) = window_scales([only], loss_type="bnpo", mode="skip")
    assert scale.item() == pytest.approx(2 / 6)


def test_active_rows_selects_and_trims() -> None:
    full = batch([0, 1, 0], [5, 2, 4]) | {
        "prompt_ids": torch.tensor([[7, 8, 9], [0, 0, 5], [0, 1, 2]]),
        "prompt_mask": torch.tensor([[1, 1, 1], [0, 0, 1], [0, 1, 1]]),
        "advantages": torch.tensor([0.0, 0.5, 0.0]),
        "num_items_in_batch": torch.tensor(11),
    }
    small = active_rows(full)
    assert small["prompt_ids"].tolist() == [[5]]
    assert small["completion_ids"].shape == (1, 2)
    assert small["advantages"].tolist() == [0.5]
    assert small["num_items_in_batch"].item() == 11


def test_active_rows_keeps_one_row_when_none_is_active() -> None:
    full = batch([0, 0], [3, 1]) | {
        "prompt_ids": torch.tensor([[1], [2]]),
        "prompt_mask": torch.tensor([[1], [1]]),
    }
    assert len(active_rows(full)[ACTIVE_KEY]) == 1


def test_trimming_a_fully_masked_completion_keeps_a_column() -> None:
    masked = {
        "prompt_ids": torch.tensor([[0, 3]]),
        "prompt_mask": torch.tensor([[0, 1]]),
        "completion_ids": torch.tensor([[4, 5]]),
        "completion_mask": torch.tensor([[0, 0]]),
    }
    assert trim_padding(masked)["completion_ids"].shape == (1, 1)


def test_the_rule_names_every_reason() -> None:
    free = {
        "beta": 0.0,
        "entropy_bonus": False,
        "top_entropy_quantile": 1.0,
        "aux_loss": False,
        "multi_objective_aggregation": "sum_then_normalize",
        "num_channels": 0,
    }
    assert skip_rule(**free).allowed  # type: ignore[arg-type]
    blocked = {"beta": 0.1, "entropy_bonus": True, "top_entropy_quantile": 0.2, "aux_loss": True, "num_channels": 1}
    for name, value in blocked.items():
        rule = skip_rule(**(free | {name: value}))  # type: ignore[arg-type]
        assert not rule.allowed
        assert rule.reason
