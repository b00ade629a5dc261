"""The reverse KL on sampled tokens: its gradient, its importance ratio, and broken log-probabilities."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from composer_rl.ops.generalized_jsd import generalized_jsd_loss
from composer_rl.ops.sampled_token_kl import capped_importance_ratio, sampled_token_reverse_kl


def random_logits(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_by_hand() -> None:
    student = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    loss = sampled_token_reverse_kl(student, torch.tensor([[-3.0, -1.0]]), reduction="none")
    assert loss.tolist() == [[2.0 * -1.0, -1.0 * -2.0]]
    loss.sum().backward()
    assert student.grad is not None
    assert student.grad.tolist() == [[2.0, -1.0]]


@pytest.mark.parametrize("off_policy", [False, True])
def test_the_expected_gradient_is_that_of_the_reverse_kl(off_policy: bool) -> None:
    """Summed over every token that could have been sampled, weighted with the probability of sampling it."""
    logits, teacher = random_logits(0, 1, 1, 6).requires_grad_(), random_logits(1, 1, 1, 6)
    student = logits.log_softmax(-1)[0]
    old = (random_logits(2, 1, 6) if off_policy else student.detach()).log_softmax(-1)
    losses = sampled_token_reverse_kl(
        student,
        teacher.log_softmax(-1)[0],
        old_logprobs=old if off_policy else None,
        ratio_cap=1e6,
        reduction="none",
    )
    estimated = torch.autograd.grad((old.exp() * losses).sum(), logits)[0]
    exact = torch.autograd.grad(generalized_jsd_loss(logits, teacher, beta=1.0), logits)[0]
    assert torch.allclose(estimated, exact, atol=1e-12)


def test_equal_sides_give_no_loss_and_no_gradient() -> None:
    student = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    loss = sampled_token_reverse_kl(student, student.detach())
    loss.backward()
    assert loss.item() == 0.0
    assert student.grad is not None
    assert student.grad.tolist() == [[0.0, 0.0]]


def test_the_ratio_is_capped_and_detached() -> None:
    new = torch.tensor([-1.0, -1.0, -1.0, -1.0], requires_grad=True)
    old = torch.tensor([-1.0, -0.5, -3.0, math.nan])
    ratio = capped_importance_ratio(new, old, cap=2.0)
    assert ratio.tolist() == pytest.approx([1.0, math.exp(-0.5), 2.0, 1.0])
    assert not ratio.requires_grad


def test_an_infinite_ratio_is_the_cap() -> None:
    """A sampler log-prob of -100 against -1 is a ratio that overflows; upstream multiplied it by a 0 mask (B29)."""
    ratio = capped_importance_ratio(torch.tensor([-1.0, -1.0]), torch.tensor([-100.0, -math.inf]))
    assert ratio.tolist() == [2.0, 2.0]


def test_a_missing_sampler_logprob_means_no_correction() -> None:
    """B31."""
    student, teacher = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-3.0, -1.0]])
    plain = sampled_token_reverse_kl(student, teacher)
    assert sampled_token_reverse_kl(student, teacher, old_logprobs=torch.full((1, 2), math.nan)).item() == plain.item()


@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf])
def test_what_stands_under_the_mask_does_not_matter(junk: float) -> None:
    mask = torch.tensor([[1, 0, -100]])
    student = torch.tensor([[-1.0, junk, junk]], requires_grad=True)
    others = torch.tensor([[-2.0, junk, junk]])
    loss = sampled_token_reverse_kl(student, others, mask, old_logprobs=others)
    loss.backward()
    assert loss.item() == pytest.approx(-1.0 * 2.0)
    assert student.grad is not None
    assert student.grad.tolist() == [[pytest.approx(2.0), 0.0, 0.0]]


@pytest.mark.parametrize("shape", [(2, 3), (0, 3)])
def test_nothing_active_gives_zero_attached_to_the_graph(shape: tuple[int, int]) -> None:
    student = torch.full(shape, math.nan, requires_grad=True)
    loss = sampled_token_reverse_kl(student, torch.zeros(shape), torch.zeros(shape), old_logprobs=torch.zeros(shape))
    loss.backward()
    assert loss.item() == 0.0
    assert student.grad is not None
    assert torch.equal(student.grad, torch.zeros(shape))


def test_bfloat16_and_batch_split() -> None:
    student, teacher = (-random_logits(seed, 4, 3).abs().bfloat16() for seed in (0, 1))
    whole = sampled_token_reverse_kl(student, teacher, reduction="sum")
    parts = sum(sampled_token_reverse_kl(student[i : i + 1], teacher[i : i + 1], reduction="sum") for i in range(4))
    assert whole.dtype == torch.float32
    assert float(parts) == pytest.approx(whole.item(), rel=1e-6)
    assert sampled_token_reverse_kl(student.double(), teacher.double()).dtype == torch.float64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"teacher_logprobs": torch.zeros(1, 3)}, r"teacher_logprobs \(1, 3\)"),
        ({"old_logprobs": torch.zeros(1, 3)}, r"old_logprobs \(1, 3\)"),
        ({"mask": torch.zeros(1, 3)}, r"mask must have shape \(1, 2\)"),
        ({"old_logprobs": torch.zeros(1, 2), "ratio_cap": 0.0}, "ratio_cap must be above 0, got 0.0"),
        ({"reduction": "avg"}, "reduction must be one of"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sampled_token_reverse_kl(
            **{"student_logprobs": torch.zeros(1, 2), "teacher_logprobs": torch.zeros(1, 2), **arguments}
        )
