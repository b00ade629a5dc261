"""Case B34: long completions whose sequence weight leaves its bounds are reported, and warned about above 20%."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from composer_rl.po.base import PolicyObjective
from composer_rl.trainer.composer_trainer import ComposerReplicationTrainer
from composer_rl.trainer.masked_share import MaskedShareWarning
from composer_rl.trainer.ratio_metrics import sampling_mask_metrics

GAP = 0.012
"""Nats that the trainer's log-prob of each token is above the sampler's."""


def test_the_share_counts_tokens_of_the_loss() -> None:
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
    assert sampling_mask_metrics(torch.tensor([[0.0], [1.5]]), mask) == {"sampling/masked_share": 0.75}
    by_token = torch.tensor([[1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    assert sampling_mask_metrics(by_token, mask) == {"sampling/masked_share": 0.25}
    assert sampling_mask_metrics(by_token, torch.zeros_like(mask)) == {}


def drifting_sampler(lengths: Sequence[int]) -> Callable[..., dict[str, Any]]:
    """Completions of these lengths, with log-probs that are GAP below those of the trainer's model."""

    def sample(trainer: Any, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        prompt = [3, 8]
        completions = [[7 + (row + place) % 40 for place in range(lengths[row])] for row in range(len(rows))]
        logprobs = []
        for completion in completions:
            ids = torch.tensor([prompt + completion])
            with torch.no_grad():
                # Through the backbone: the head is TRL's fused one by now.
                hidden = trainer.model.model(input_ids=ids).last_hidden_state
            scores = (hidden @ trainer.model.lm_head.weight.T).log_softmax(-1)[0, len(prompt) - 1 : -1]
            picked = scores.gather(1, torch.tensor(completion).unsqueeze(1)).squeeze(1)
            logprobs.append((picked - GAP).tolist())
        return {"prompt_ids": [prompt] * len(rows), "completion_ids": completions, "logprobs": logprobs}

    return sample


def test_a_small_gap_masks_every_long_completion_and_is_warned_about(
    make_model: Callable,
    make_config: Callable,
    tokenizer: Any,
    prompts: Any,
    reward: Callable,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """100 tokens: exp(1.2) = 3.3 is above the bound of 3. 50 tokens: exp(0.6) = 1.8 is not. 400 of 600 are masked."""
    trainer = ComposerReplicationTrainer(
        model=make_model(),
        args=make_config(max_completion_length=100, max_steps=2, learning_rate=1e-6),
        reward_funcs=[reward],
        train_dataset=prompts,
        processing_class=tokenizer,
        sample_rollouts=drifting_sampler([100, 50] * 4),
    )
    # An engine is only asked for its weights here; the correction is TRL's own.
    trainer.use_vllm = True
    trainer.vllm_generation = SimpleNamespace(sync_weights=lambda: None)
    trainer._last_loaded_step = -1
    trainer.train()
    logged = [record for record in trainer.state.log_history if "sampling/masked_share" in record]
    assert [record["sampling/masked_share"] for record in logged] == pytest.approx([400 / 600] * 2)
    warning = MaskedShareWarning(PolicyObjective().masks())
    for record in logged:
        warning.observe(record)
    (message,) = [record.getMessage() for record in caplog.records if "masked out" in record.getMessage()]
    assert message.startswith("67% of a step is masked out of the loss (sampling/masked_share) by po.vllm_importance")
    assert "token_truncate" in message


def test_up_to_a_fifth_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    warning = MaskedShareWarning({"share": "po.x: do this"})
    warning.observe({"share": 0.2, "other": 1.0})
    warning.observe({"share": None})
    assert not caplog.records
    warning.observe({"share": 0.21})
    warning.observe({"share": 0.9})
    assert [record.getMessage() for record in caplog.records] == [
        "21% of a step is masked out of the loss (share) by po.x: do this"
    ]
