"""The entropy-gated mixture of the two KL divergences."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from composer_rl.ops.entropy_aware_opd import entropy_aware_opd_loss, teacher_entropy
from composer_rl.ops.generalized_jsd import generalized_jsd_loss

seeds = st.integers(0, 2**31)
MASK = torch.tensor([[1, 0, 1], [-100, 0, 1]])


def random_logits(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def test_entropy_by_hand() -> None:
    logits = torch.tensor([[[0.0, 0.0, -math.inf], [1e4, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    assert teacher_entropy(logits).tolist() == [pytest.approx([math.log(2), 0.0, math.log(3)])]
    assert teacher_entropy(logits.bfloat16()).dtype == torch.float32
    assert teacher_entropy(logits.double()).dtype == torch.float64


def test_by_hand() -> None:
    student, teacher = torch.tensor([[[0.0, 0.0]]]).double(), torch.tensor([[[math.log(3), 0.0]]]).double()
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    forward = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    reverse = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    for h_max, weight in ((None, entropy / math.log(2)), (2.0, entropy / 2), (0.1, 1.0)):
        expected = weight * forward + (1 - weight) * reverse
        assert entropy_aware_opd_loss(student, teacher, h_max=h_max).item() == pytest.approx(expected)


def test_an_unsure_teacher_means_forward_kl_and_a_sure_one_reverse_kl() -> None:
    student = random_logits(0, 1, 2, 5)
    unsure, sure = torch.zeros(1, 2, 5).double(), torch.tensor([25.0, 0, 0, 0, 0]).double().expand(1, 2, 5)
    for teacher, beta in ((unsure, 0.0), (sure, 1.0)):
        expected = generalized_jsd_loss(student, teacher, beta=beta).item()
        assert entropy_aware_opd_loss(student, teacher).item() == pytest.approx(expected, rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, vocab=st.integers(1, 30), temperature=st.floats(0.3, 3))
def test_never_negative_and_zero_for_equal_sides(seed: int, vocab: int, temperature: float) -> None:
    student = random_logits(seed, 2, 3, vocab, dtype=torch.float32).requires_grad_()
    teacher = random_logits(seed + 1, 2, 3, vocab, dtype=torch.float32)
    losses = entropy_aware_opd_loss(student, teacher, temperature=temperature, reduction="none")
    assert (losses >= -1e-6).all()
    halved = entropy_aware_opd_loss(student / temperature, teacher / temperature, reduction="none")
    assert torch.allclose(losses, halved, atol=1e-5)
    same = entropy_aware_opd_loss(student, student.detach(), temperature=temperature)
    same.backward()
    assert same.item() == pytest.approx(0.0, abs=1e-5)
    assert student.grad is not None
    assert student.grad.abs().max() < 1e-5


@pytest.mark.parametrize("arguments", [{}, {"temperature": 2.0}, {"h_max": 1.0}, {"labels": MASK}])
def test_gradient(arguments: dict[str, Any]) -> None:
    student, teacher = random_logits(0, 2, 3, 5).requires_grad_(), random_logits(1, 2, 3, 5)
    assert torch.autograd.gradcheck(lambda values: entropy_aware_opd_loss(values, teacher, **arguments), (student,))


def test_divisors() -> None:
    student, teacher = random_logits(0, 2, 3, 5), random_logits(1, 2, 3, 5)
    for labels, count in ((MASK, 3), (None, 6)):
        per_token = entropy_aware_opd_loss(student, teacher, labels=labels, reduction="none")
        total = entropy_aware_opd_loss(student, teacher, labels=labels, reduction="sum").item()
        assert per_token.shape == (2, 3)
        assert per_token.sum().item() == pytest.approx(total)
        for reduction in ("batchmean", "mean"):
            mean = entropy_aware_opd_loss(student, teacher, labels=labels, reduction=reduction).item()
            assert mean == pytest.approx(total / count)


@settings(max_examples=10, deadline=None)
@given(seed=seeds, cut=st.integers(0, 4))
def test_splitting_the_batch_changes_nothing(seed: int, cut: int) -> None:
    student, teacher = random_logits(seed, 4, 3, 5), random_logits(seed + 1, 4, 3, 5)
    labels = (random_logits(seed + 2, 4, 3) > 0).long()
    parts = sum(
        entropy_aware_opd_loss(student[rows], teacher[rows], labels=labels[rows], reduction="sum").item()
        for rows in (slice(None, cut), slice(cut, None))
    )
    whole = entropy_aware_opd_loss(student, teacher, labels=labels, reduction="sum").item()
    assert parts == pytest.approx(whole, rel=1e-12)


def test_what_stands_under_the_mask_does_not_matter() -> None:
    student, teacher = random_logits(0, 2, 3, 5), random_logits(1, 2, 3, 5)
    clean = entropy_aware_opd_loss(student, teacher, labels=MASK).item()
    for junk in (math.nan, math.inf, -math.inf):
        dirty, other = student.clone(), teacher.clone()
        dirty[MASK != 1] = other[MASK != 1] = junk
        dirty.requires_grad_()
        loss = entropy_aware_opd_loss(dirty, other, labels=MASK)
        loss.backward()
        assert loss.item() == clean
        assert dirty.grad is not None
        assert dirty.grad.isfinite().all()
        assert (dirty.grad[MASK != 1] == 0).all()


@pytest.mark.parametrize("shape", [(2, 3, 5), (0, 3, 5)])
@pytest.mark.parametrize("reduction", ["batchmean", "sum", "mean", "none"])
def test_nothing_active_gives_zero_attached_to_the_graph(shape: tuple[int, ...], reduction: str) -> None:
    student = torch.full(shape, math.nan, requires_grad=True)
    loss = entropy_aware_opd_loss(student, torch.zeros(shape), labels=torch.zeros(shape[:2]), reduction=reduction).sum()
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(student.grad, torch.zeros(shape))


def test_forbidden_tokens() -> None:
    """-inf on both sides: neither the loss nor its gradient is NaN."""
    student, teacher = random_logits(0, 1, 2, 5), random_logits(1, 1, 2, 5)
    padding = torch.full((1, 2, 3), -math.inf).double()
    padded = torch.cat([student, padding], dim=-1).requires_grad_()
    loss = entropy_aware_opd_loss(padded, torch.cat([teacher, padding], dim=-1), h_max=1.0)
    loss.backward()
    assert loss.item() == pytest.approx(entropy_aware_opd_loss(student, teacher, h_max=1.0).item())
    assert padded.grad is not None
    assert padded.grad.isfinite().all()


def test_bfloat16_is_computed_in_float32() -> None:
    student, teacher = (random_logits(seed, 1, 2, 50_000, dtype=torch.bfloat16) for seed in (0, 1))
    loss = entropy_aware_opd_loss(student, teacher)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(entropy_aware_opd_loss(student.double(), teacher.double()).item(), rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"teacher_logits": torch.zeros(1, 2, 4)}, "shapes must be equal"),
        ({"labels": torch.ones(1, 3)}, r"labels must have shape \(1, 2\)"),
        ({"reduction": "avg"}, "reduction must be one of"),
        ({"h_max": 0.0}, "h_max must be above 0 or None, got 0.0"),
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        entropy_aware_opd_loss(
            **{"student_logits": torch.zeros(1, 2, 3), "teacher_logits": torch.zeros(1, 2, 3), **arguments}
        )
