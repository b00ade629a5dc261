"""The trainer is TRL's bit for bit without extras, and agrees with it when it skips work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from composer_rl.losses.base import LossChannel, LossOutput
from composer_rl.trainer.composer_trainer import BatchRules, ComposerReplicationTrainer


def train(trainer: Any) -> tuple[list[float], dict[str, torch.Tensor]]:
    trainer.train()
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    return losses, {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


@pytest.fixture
def run(make_model: Callable, make_config: Callable, tokenizer: Any, prompts: Any, reward: Callable) -> Callable:
    def build(cls: type, *, config: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        return cls(
            model=make_model(),
            args=make_config(**(config or {})),
            reward_funcs=[reward],
            train_dataset=prompts,
            processing_class=tokenizer,
            **kwargs,
        )

    return build


@pytest.mark.parametrize("loss_type", ["dr_grpo", "grpo", "dapo", "cispo"])
def test_policy_only_is_trl_bit_for_bit(run: Callable, loss_type: str) -> None:
    config = {"loss_type": loss_type, "steps_per_generation": 2, "max_steps": 4}
    trl_losses, trl_weights = train(run(GRPOTrainer, config=config))
    our_losses, our_weights = train(run(ComposerReplicationTrainer, config=config))
    assert any(loss != 0.0 for loss in trl_losses)
    assert our_losses == trl_losses
    for name, value in trl_weights.items():
        assert torch.equal(our_weights[name], value), name


@pytest.mark.parametrize(
    "config",
    [
        {"loss_type": "dr_grpo"},
        {"loss_type": "grpo", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
        {"loss_type": "bnpo"},
        {"loss_type": "dapo", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
        {"loss_type": "luspo", "importance_sampling_level": "sequence"},
        {"loss_type": "sapo", "steps_per_generation": 2},
        {"loss_type": "vespo"},
        {"loss_type": "cispo", "epsilon_high": 5.0},
    ],
    ids=lambda config: config["loss_type"],
)
def test_skipping_rows_without_variance_keeps_loss_and_gradient(run: Callable, config: dict[str, Any]) -> None:
    """One optimizer step with SGD: the weights differ from TRL's by the gradient alone."""
    config = config | {"max_steps": 1, "optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0.0}
    trl_losses, trl_weights = train(run(GRPOTrainer, config=config))
    trainer = run(ComposerReplicationTrainer, config=config, batch_rules=BatchRules(skip_zero_variance=True))
    our_losses, our_weights = train(trainer)
    skipped = [r["policy/rows_skipped"] for r in trainer.state.log_history if "policy/rows_skipped" in r]
    assert 0.0 < skipped[0] < 1.0, "the reward of this test must give groups with and without variance"
    assert our_losses == pytest.approx(trl_losses, abs=1e-6)
    for name, value in trl_weights.items():
        torch.testing.assert_close(our_weights[name], value, atol=1e-6, rtol=1e-5)


def test_a_batch_without_variance_gives_a_zero_loss_with_a_graph(run: Callable) -> None:
    trainer = run(
        ComposerReplicationTrainer,
        config={"max_steps": 1, "optim": "sgd", "learning_rate": 1.0},
        batch_rules=BatchRules(skip_zero_variance=True),
    )
    trainer.reward_funcs = [lambda completions, **kwargs: [0.5] * len(completions)]
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    losses, after = train(trainer)
    assert losses == [0.0]
    assert all(torch.equal(before[name], after[name]) for name in before)


@dataclass(kw_only=True)
class MeanLogProb(LossChannel):
    """Negative log-probability of the sampled tokens: enough of a channel to see how it is scaled."""

    def num_active(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return inputs["completion_mask"].sum().float()

    def compute(self, model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> LossOutput:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
        picked = torch.log_softmax(logits.float(), dim=-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
        picked = picked[:, -inputs["completion_ids"].size(1) :]
        return LossOutput(loss_sum=-(picked * inputs["completion_mask"]).sum(), metrics={"seen": 1.0})


def test_a_channel_does_not_depend_on_accumulation(run: Callable) -> None:
    """The same 8 rows in one micro-batch or four: the channel's gradient is the same (cases B25 and B26)."""
    weights = []
    for size, accumulation in ((8, 1), (2, 4)):
        trainer = run(
            ComposerReplicationTrainer,
            config={
                "per_device_train_batch_size": size,
                "gradient_accumulation_steps": accumulation,
                "max_steps": 1,
                "optim": "sgd",
                "learning_rate": 1.0,
                "max_grad_norm": 0.0,
            },
            channels={"ce": MeanLogProb(weight=0.5)},
        )
        trainer.reward_funcs = [lambda completions, **kwargs: [0.5] * len(completions)]
        weights.append(train(trainer)[1])
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, atol=1e-6, rtol=1e-5)
    assert any(not torch.equal(weights[0][n], v) for n, v in run(GRPOTrainer).model.state_dict().items())


def test_a_channel_with_weight_zero_is_the_policy_loss(run: Callable) -> None:
    plain = train(run(GRPOTrainer))
    ours = train(run(ComposerReplicationTrainer, channels={"ce": MeanLogProb(weight=0.0)}))
    assert ours[0] == plain[0]
    assert all(torch.equal(ours[1][name], value) for name, value in plain[1].items())


def test_dynamic_sampling_refuses_terms_that_need_every_row(run: Callable) -> None:
    with pytest.raises(ValueError, match="entropy bonus"):
        run(
            ComposerReplicationTrainer,
            config={"entropy_coef": 0.1},
            batch_rules=BatchRules(dynamic_sampling="drop"),
        )


def test_dropped_rows_leave_the_divisor(run: Callable) -> None:
    """dr_grpo divides by rows: dropping a share s of them multiplies loss and gradient by 1 / (1 - s)."""
    config = {"max_steps": 1, "optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0.0, "loss_type": "dr_grpo"}
    start = run(GRPOTrainer).model.state_dict()
    moves, skipped = {}, 0.0
    for rule in ("off", "drop"):
        trainer = run(ComposerReplicationTrainer, config=config, batch_rules=BatchRules(dynamic_sampling=rule))
        _, weights = train(trainer)
        skipped = next(r["policy/rows_skipped"] for r in trainer.state.log_history if "policy/rows_skipped" in r)
        moves[rule] = {name: value - start[name] for name, value in weights.items()}
    assert 0.0 < skipped < 1.0
    for name, move in moves["off"].items():
        torch.testing.assert_close(moves["drop"][name], move / (1.0 - skipped), atol=1e-6, rtol=1e-4)
