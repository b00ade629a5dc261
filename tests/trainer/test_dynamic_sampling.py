"""Groups with variance fill the batch; prompts keep their padding side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from composer_rl.curricula.uniform import UniformCurriculum
from composer_rl.trainer.composer_trainer import BatchRules, ComposerReplicationTrainer
from composer_rl.trainer.dynamic_sampling import concatenate, group_indices
from composer_rl.trainer.prompt_source import PromptSource
from composer_rl.trainer.zero_variance import ACTIVE_KEY
from composer_rl.types import Task


def test_group_indices_stop_at_what_is_wanted() -> None:
    good, rest = group_indices(torch.tensor([1, 1, 0, 0, 1, 1]), 2, wanted=1)
    assert good.tolist() == [0, 1]
    assert rest.tolist() == [2, 3]


def test_concatenate_pads_prompts_left_and_completions_right() -> None:
    first = {
        "prompt_ids": torch.tensor([[5]]),
        "prompt_mask": torch.tensor([[1]]),
        "completion_ids": torch.tensor([[6, 7]]),
        "tool_mask": torch.tensor([[1, 0]]),
        "num_items_in_batch": torch.tensor(2),
    }
    second = {
        "prompt_ids": torch.tensor([[1, 2]]),
        "prompt_mask": torch.tensor([[1, 1]]),
        "completion_ids": torch.tensor([[3]]),
        "tool_mask": torch.tensor([[1]]),
        "num_items_in_batch": torch.tensor(1),
    }
    merged = concatenate([first, second], pad_token_id=9)
    assert merged["prompt_ids"].tolist() == [[9, 5], [1, 2]]
    assert merged["prompt_mask"].tolist() == [[0, 1], [1, 1]]
    assert merged["completion_ids"].tolist() == [[6, 7], [3, 9]]
    assert merged["tool_mask"].tolist() == [[1, 0], [1, 1]]
    assert merged["num_items_in_batch"].item() == 2


@pytest.mark.parametrize(("rounds", "expected_active"), [(1, 0.5), (8, 1.0)])
def test_resampling_replaces_groups_without_variance(
    make_model: Callable, make_config: Callable, tokenizer: Any, prompts: Any, rounds: int, expected_active: float
) -> None:
    """Rewards vary for prompts of an even number only: with enough rounds, the batch holds no others."""
    tasks = [Task(task_id=str(i), prompt=row["prompt"], payload={"even": i % 2 == 0}) for i, row in enumerate(prompts)]
    seen: list[dict[str, torch.Tensor]] = []

    class Recording(ComposerReplicationTrainer):
        def _compute_loss(self, model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
            seen.append(inputs)
            return super()._compute_loss(model, inputs)

    def reward(completions: Any, even: list[bool], **kwargs: Any) -> list[float]:
        return [float(i % 2) if is_even else 0.0 for i, is_even in enumerate(even)]

    source = PromptSource(tasks, UniformCurriculum(), seed=1)
    trainer = Recording(
        model=make_model(),
        args=make_config(max_steps=2, loss_type="dapo", per_device_train_batch_size=16),
        reward_funcs=[reward],
        train_dataset=prompts,
        processing_class=tokenizer,
        prompt_source=source,
        batch_rules=BatchRules(dynamic_sampling="resample", dynamic_sampling_max_rounds=rounds),
    )
    trainer.train()
    shares = [batch[ACTIVE_KEY].float().mean().item() for batch in seen]
    if expected_active == 1.0:
        assert shares == [1.0, 1.0]
    else:
        assert min(shares) < 1.0
    for batch in seen:
        assert len(batch[ACTIVE_KEY]) == 16
        tokens = (batch["completion_mask"].sum(dim=1) * batch[ACTIVE_KEY]).sum()
        assert batch["num_items_in_batch"].item() == tokens.item()
    used = [r["dynamic_sampling/rounds"] for r in trainer.state.log_history if "dynamic_sampling/rounds" in r]
    assert max(used) <= rounds
    assert source.num_drawn == sum(used) * 4
