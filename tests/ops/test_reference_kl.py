"""Estimates of the KL divergence from the reference: values, gradients in expectation, extremes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from composer_rl.ops.generalized_jsd import generalized_jsd_loss
from composer_rl.ops.reference_kl import ESTIMATORS, reference_kl_loss

every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)


def random_logits(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("estimator", "expected"), [("k1", 2.0), ("k2", 2.0), ("k3", math.exp(-2) + 1)])
def test_by_hand(estimator: str, expected: float) -> None:
    policy, reference = torch.tensor([[-1.0]]), torch.tensor([[-3.0]])
    assert reference_kl_loss(policy, reference, estimator=estimator).item() == pytest.approx(expected)


def test_k1_has_the_sign_of_minus_log_r() -> None:
    """r = ref / pi, so a token that the policy likes more than the reference costs something."""
    assert reference_kl_loss(torch.tensor([[-1.0]]), torch.tensor([[-2.0]]), estimator="k1").item() == 1.0


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_the_expected_value_is_the_kl_divergence(estimator: str) -> None:
    policy, reference = random_logits(0, 1, 6), random_logits(1, 1, 6)
    logprobs = policy.log_softmax(-1)
    estimates = reference_kl_loss(logprobs, reference.log_softmax(-1), estimator=estimator, reduction="none")
    exact = generalized_jsd_loss(policy[None], reference[None], beta=1.0)
    assert (logprobs.exp() * estimates).sum().item() == pytest.approx(exact.item())


def test_the_expected_gradients_of_the_docstring() -> None:
    policy, reference = random_logits(0, 1, 6).requires_grad_(), random_logits(1, 1, 6)
    logprobs = policy.log_softmax(-1)
    exact = {
        beta: torch.autograd.grad(generalized_jsd_loss(policy[None], reference[None], beta=beta), policy)[0]
        for beta in (0.0, 1.0)
    }
    for estimator, expected in (("k1", torch.zeros(1, 6)), ("k2", exact[1.0]), ("k3", exact[0.0])):
        estimates = reference_kl_loss(logprobs, reference.log_softmax(-1), estimator=estimator, reduction="none")
        gradient = torch.autograd.grad((logprobs.detach().exp() * estimates).sum(), policy, retain_graph=True)[0]
        assert torch.allclose(gradient, expected.double(), atol=1e-12)


@every_estimator
def test_gradient(estimator: str) -> None:
    policy, reference = random_logits(0, 2, 3).requires_grad_(), random_logits(1, 2, 3)
    mask = torch.tensor([[1, 0, 1], [-100, 1, 1]])
    assert torch.autograd.gradcheck(
        lambda values: reference_kl_loss(values, reference, mask, estimator=estimator), (policy,)
    )


@every_estimator
def test_equal_sides_and_signs(estimator: str) -> None:
    policy, reference = random_logits(0, 4, 5).float(), random_logits(1, 4, 5).float()
    assert reference_kl_loss(policy, policy, estimator=estimator).item() == 0.0
    if estimator != "k1":
        assert (reference_kl_loss(policy, reference, estimator=estimator, reduction="none") >= 0).all()


@every_estimator
@pytest.mark.parametrize("difference", [500.0, -500.0])
def test_extremes_stay_finite(estimator: str, difference: float) -> None:
    policy = torch.tensor([[difference]], requires_grad=True)
    loss = reference_kl_loss(policy, torch.zeros(1, 1), estimator=estimator)
    loss.backward()
    assert loss.isfinite()
    assert policy.grad is not None
    assert policy.grad.isfinite().all()


@every_estimator
@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf])
def test_what_stands_under_the_mask_does_not_matter(estimator: str, junk: float) -> None:
    policy = torch.tensor([[-1.0, junk, junk]], requires_grad=True)
    loss = reference_kl_loss(
        policy, torch.tensor([[-2.0, junk, junk]]), torch.tensor([[1, 0, -100]]), estimator=estimator
    )
    loss.backward()
    expected = reference_kl_loss(torch.tensor([[-1.0]]), torch.tensor([[-2.0]]), estimator=estimator)
    assert loss.item() == expected.item()
    assert policy.grad is not None
    assert policy.grad[0, 1:].tolist() == [0.0, 0.0]
    assert policy.grad.isfinite().all()


@every_estimator
@pytest.mark.parametrize("shape", [(2, 3), (0, 3)])
def test_nothing_active_gives_zero_attached_to_the_graph(estimator: str, shape: tuple[int, int]) -> None:
    policy = torch.full(shape, math.nan, requires_grad=True)
    loss = reference_kl_loss(policy, torch.zeros(shape), torch.zeros(shape), estimator=estimator)
    loss.backward()
    assert loss.item() == 0.0
    assert policy.grad is not None
    assert torch.equal(policy.grad, torch.zeros(shape))


@every_estimator
def test_bfloat16_and_batch_split(estimator: str) -> None:
    policy, reference = (-random_logits(seed, 4, 3).abs().bfloat16() for seed in (0, 1))
    whole = reference_kl_loss(policy, reference, estimator=estimator, reduction="sum")
    parts = sum(
        reference_kl_loss(policy[i : i + 1], reference[i : i + 1], estimator=estimator, reduction="sum")
        for i in range(4)
    )
    assert whole.dtype == torch.float32
    assert float(parts) == pytest.approx(whole.item(), rel=1e-6)
    assert reference_kl_loss(policy.double(), reference.double(), estimator=estimator).dtype == torch.float64


def test_the_reference_gets_no_gradient() -> None:
    reference = torch.zeros(1, 2, requires_grad=True)
    reference_kl_loss(torch.ones(1, 2, requires_grad=True), reference).backward()
    assert reference.grad is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reference_logprobs": torch.zeros(1, 3)}, r"reference_logprobs \(1, 3\)"),
        ({"mask": torch.zeros(1, 3)}, r"mask must have shape \(1, 2\)"),
        ({"estimator": "k4"}, "estimator must be one of k1, k2, k3, got 'k4'"),
        ({"reduction": "avg"}, "reduction must be one of"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reference_kl_loss(
            **{"policy_logprobs": torch.zeros(1, 2), "reference_logprobs": torch.zeros(1, 2), **arguments}
        )
