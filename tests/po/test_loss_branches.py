"""One case per loss type (B38): TRL's `_compute_loss` against the formula of the method, written token by token.

The hand formulas work on scalars in the order of the papers' equations and share nothing with TRL's tensor code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from composer_rl.po.base import PolicyObjective

LENGTHS = (5, 3, 6, 1)
TOOL_TOKENS = {(0, 2), (2, 0), (2, 1)}
ADVANTAGES = (1.0, -0.5, 0.7, -1.2)
MAX_COMPLETION_LENGTH = 6
LOG_RATIO_SHIFTS = (0.5, -0.6, 0.05, -0.05, 0.3, -0.3)

CASES: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo", "epsilon_high": 0.28},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.02, "epsilon_high": 0.03},
    "bnpo": {"loss_type": "bnpo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "dapo": {"loss_type": "dapo", "epsilon_high": 0.28},
    "delta": {"loss_type": "dr_grpo", "delta": 1.3},
    "luspo": {"loss_type": "luspo", "importance_sampling_level": "sequence", "epsilon": 0.02},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.2},
    "sapo": {"loss_type": "sapo"},
    "vespo": {"loss_type": "vespo"},
}


def token_term(po: PolicyObjective, ratio: torch.Tensor, log_prob: torch.Tensor, adv: float, weight: float) -> Any:
    """Loss of one token; `ratio` is the token's or the sequence's, `weight` vespo's w."""
    if po.loss_type == "cispo":
        return -min(ratio.item(), po.effective_epsilon_high) * adv * log_prob
    if po.loss_type == "sapo":
        tau = po.sapo_temperature_pos if adv > 0 else po.sapo_temperature_neg
        return -(4 / tau) * torch.sigmoid(tau * (ratio - 1)) * adv
    if po.loss_type == "vespo":
        k, lam = (po.vespo_k_pos, po.vespo_lambda_pos) if adv >= 0 else (po.vespo_k_neg, po.vespo_lambda_neg)
        return -(weight**k * math.exp(lam * (1 - weight))) * adv * log_prob
    clipped = ratio.clamp(1 - po.epsilon, 1 + po.effective_epsilon_high)
    free = ratio if po.delta is None else ratio.clamp(max=po.delta)
    return -torch.minimum(free * adv, clipped * adv)


def hand_loss(po: PolicyObjective, log_probs: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    rows: list[list[torch.Tensor]] = []
    for row, (length, adv) in enumerate(zip(LENGTHS, ADVANTAGES, strict=True)):
        tokens = [t for t in range(length) if (row, t) not in TOOL_TOKENS]
        differences = [log_probs[row, t] - old[row, t] for t in tokens]
        mean_difference = sum(differences) / len(tokens)
        weight = math.exp(sum(d.item() for d in differences))
        terms = []
        for t, difference in zip(tokens, differences, strict=True):
            exponent = mean_difference if po.importance_sampling_level == "sequence" else difference
            terms.append(token_term(po, torch.exp(exponent), log_probs[row, t], adv, weight))
        rows.append(terms)
    row_sums = [sum(terms) for terms in rows]
    num_tokens = sum(len(terms) for terms in rows)
    match po.loss_type:
        case "grpo" | "sapo":
            return sum(total / len(terms) for total, terms in zip(row_sums, rows, strict=True)) / len(rows)
        case "luspo":
            return sum(row_sums) / len(rows)
        case "dr_grpo":
            return sum(row_sums) / (len(rows) * MAX_COMPLETION_LENGTH)
        case _:
            return sum(row_sums) / num_tokens


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    completion_ids = torch.randint(2, 24, (4, MAX_COMPLETION_LENGTH), generator=generator)
    mask = torch.tensor([[int(t < length) for t in range(MAX_COMPLETION_LENGTH)] for length in LENGTHS])
    tool_mask = torch.ones_like(mask)
    for row, t in TOOL_TOKENS:
        tool_mask[row, t] = 0
    prompt_mask = torch.tensor([[0, 1, 1], [1, 1, 1], [0, 0, 1], [1, 1, 1]])
    return {
        "prompt_ids": torch.randint(2, 24, (4, 3), generator=generator) * prompt_mask,
        "prompt_mask": prompt_mask,
        "completion_ids": completion_ids * mask,
        "completion_mask": mask,
        "tool_mask": tool_mask,
        "advantages": torch.tensor(ADVANTAGES),
        "num_items_in_batch": (mask * tool_mask).sum(),
    }


def model_log_probs(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """(B, C) log-probs of the completion tokens from a plain forward pass."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    hidden = model.model(input_ids=ids, attention_mask=attention).last_hidden_state
    logits = model.lm_head(hidden)[:, batch["prompt_ids"].size(1) - 1 : -1]
    return torch.log_softmax(logits, dim=-1).gather(-1, batch["completion_ids"].unsqueeze(-1)).squeeze(-1)


def gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("on_policy", [False, True])
def test_trl_computes_the_method_of_its_loss_type(
    case: str, on_policy: bool, make_trainer: Callable, batch: dict[str, torch.Tensor]
) -> None:
    objective = PolicyObjective(num_generations=4, **CASES[case])
    trainer = make_trainer(**objective.to_grpo_kwargs())
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    log_probs = model_log_probs(trainer.model, batch)
    old = log_probs.detach() - (0.0 if on_policy else torch.tensor(LOG_RATIO_SHIFTS))
    expected = hand_loss(objective, log_probs, old)
    expected.backward()
    expected_gradients = gradients(trainer.model)

    inputs = batch if on_policy else batch | {"old_per_token_logps": old}
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
    for ours, theirs in zip(expected_gradients, gradients(trainer.model), strict=True):
        torch.testing.assert_close(theirs, ours, atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("case", ["grpo", "dapo", "dr_grpo", "bnpo"])
def test_the_clip_bounds_act_once_old_log_probs_differ(
    case: str, make_trainer: Callable, batch: dict[str, torch.Tensor]
) -> None:
    """Shifts 0.5, -0.6, 0.3 and -0.3 leave [0.8, 1.2] (0.3 also leaves 1.28); each acts against its advantage only."""
    objective = PolicyObjective(num_generations=4, **CASES[case])
    trainer = make_trainer(**objective.to_grpo_kwargs())
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    old = model_log_probs(trainer.model, batch).detach() - torch.tensor(LOG_RATIO_SHIFTS)
    trainer._compute_loss(trainer.model, batch | {"old_per_token_logps": old})
    metrics = {name: values[0] for name, values in trainer._metrics["train"].items()}
    trained = [(row, t) for row in range(4) for t in range(LENGTHS[row]) if (row, t) not in TOOL_TOKENS]
    high = [(r, t) for r, t in trained if LOG_RATIO_SHIFTS[t] in (0.5, 0.3) and ADVANTAGES[r] > 0]
    low = [(r, t) for r, t in trained if LOG_RATIO_SHIFTS[t] in (-0.6, -0.3) and ADVANTAGES[r] < 0]
    assert high
    assert low
    assert metrics["clip_ratio/high_mean"] == pytest.approx(len(high) / len(trained))
    assert metrics["clip_ratio/low_mean"] == pytest.approx(len(low) / len(trained))

    trainer._metrics["train"].clear()
    trainer._compute_loss(trainer.model, batch)
    assert trainer._metrics["train"]["clip_ratio/region_mean"] == [0.0]


COMPLETIONS = [
    [2, 1],
    [3, 4, 5, 1],
    [6, 7, 8, 9, 10, 1],
    [11, 1],
    [12, 13, 1],
    [14, 15, 16, 17, 1],
    [18, 1],
    [19, 20, 1],
]


def weights_after_one_step(make_trainer: Callable, loss_type: str, accumulation: int) -> list[torch.Tensor]:
    """Weights after one SGD step with learning rate 1 on 8 rows of uneven lengths."""
    trainer = make_trainer(
        completions=COMPLETIONS,
        loss_type=loss_type,
        per_device_train_batch_size=8 // accumulation,
        gradient_accumulation_steps=accumulation,
    )
    trainer.train()
    return [p.detach().clone() for p in trainer.model.parameters()]


def distance(first: list[torch.Tensor], second: list[torch.Tensor]) -> float:
    return max((a - b).abs().max().item() for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("loss_type", ["dapo", "dr_grpo", "grpo"])
def test_accumulation_leaves_the_gradient_alone(loss_type: str, make_trainer: Callable) -> None:
    """Cases B23 and B25: one owner of the accumulation divisor, dapo invariant on uneven lengths."""
    at_once = weights_after_one_step(make_trainer, loss_type, 1)
    for accumulation in (4, 8):
        assert distance(weights_after_one_step(make_trainer, loss_type, accumulation), at_once) < 1e-6


def test_accumulation_changes_bnpo_into_grpo(make_trainer: Callable) -> None:
    """Case B23: bnpo divides by the tokens of the micro-batch, so with one row a micro-batch it is grpo."""
    bnpo_at_once = weights_after_one_step(make_trainer, "bnpo", 1)
    bnpo_by_row = weights_after_one_step(make_trainer, "bnpo", 8)
    assert distance(bnpo_by_row, weights_after_one_step(make_trainer, "grpo", 8)) < 1e-6
    assert distance(bnpo_by_row, bnpo_at_once) > 1e-4
    assert distance(bnpo_at_once, weights_after_one_step(make_trainer, "dapo", 1)) < 1e-6


def test_a_sampler_without_log_probs_is_no_correction(make_trainer: Callable) -> None:
    """Case B31: None for every sampled token; the off-policy mask then has no evidence and keeps every row."""
    settings = {"completions": COMPLETIONS, "loss_type": "dapo"}
    plain = make_trainer(**settings)
    masked = make_trainer(logprob=None, off_policy_mask_threshold=0.5, **settings)
    for trainer in (plain, masked):
        trainer.train()
    assert distance(list(plain.model.parameters()), list(masked.model.parameters())) < 1e-6
