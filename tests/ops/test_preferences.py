"""Preference losses: closed forms, gradients, pairs that say nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from composer_rl.ops.logprobs import avg_sequence_logprob, target_logprobs
from composer_rl.ops.preferences import dpo_loss, ipo_loss, simpo_loss

LOSSES: dict[str, tuple[Callable[..., torch.Tensor], int]] = {
    "simpo": (simpo_loss, 2),
    "dpo": (dpo_loss, 4),
    "ipo": (ipo_loss, 4),
}
every_loss = pytest.mark.parametrize(("loss", "num_inputs"), LOSSES.values(), ids=LOSSES)


def pairs(num_inputs: int, batch: int = 4, seed: int = 0, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return list((-5 * torch.rand(num_inputs, batch, generator=generator, dtype=torch.float64)).to(dtype))


def test_simpo_by_hand() -> None:
    loss = simpo_loss(torch.tensor([-1.0]), torch.tensor([-2.0]), beta=2.0, gamma=1.0)
    assert loss.item() == pytest.approx(math.log1p(math.exp(-1)))
    assert simpo_loss(torch.tensor([-1.0]), torch.tensor([-1.0]), gamma=0.0).item() == pytest.approx(math.log(2))


def test_dpo_and_ipo_by_hand() -> None:
    inputs = [torch.tensor([value]) for value in (-10.0, -14.0, -11.0, -12.0)]  # h = 4 - 1
    assert dpo_loss(*inputs, beta=0.5).item() == pytest.approx(math.log1p(math.exp(-1.5)))
    assert ipo_loss(*inputs, beta=0.5).item() == pytest.approx((3 - 1) ** 2)
    at_the_reference = [torch.tensor([value]) for value in (-10.0, -14.0, -10.0, -14.0)]
    assert dpo_loss(*at_the_reference).item() == pytest.approx(math.log(2))
    assert ipo_loss(*at_the_reference, beta=0.1).item() == pytest.approx(25.0)


@every_loss
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), beta=st.floats(0.05, 5))
def test_gradient(loss: Callable[..., torch.Tensor], num_inputs: int, seed: int, beta: float) -> None:
    inputs = [values.requires_grad_() for values in pairs(num_inputs, seed=seed)]
    mask = torch.tensor([1, 0, 1, -100])
    assert torch.autograd.gradcheck(lambda *values: loss(*values, beta=beta, mask=mask), inputs)


def test_dpo_gradient_is_the_implicit_preference_for_the_rejected_side() -> None:
    inputs = [values.requires_grad_() for values in pairs(4)]
    dpo_loss(*inputs, beta=0.3).backward()
    margins = (inputs[0] - inputs[1] - inputs[2] + inputs[3]).detach()
    expected = -0.3 * torch.sigmoid(-0.3 * margins) / 4
    assert torch.allclose(inputs[0].grad, expected)
    assert torch.allclose(inputs[1].grad, -expected)


@every_loss
@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf])
def test_masked_pairs_do_not_matter(loss: Callable[..., torch.Tensor], num_inputs: int, junk: float) -> None:
    inputs, mask = pairs(num_inputs), torch.tensor([1, 0, 1, -100])
    expected = loss(*[values[[0, 2]] for values in inputs]).item()
    for values in inputs:
        values[mask != 1] = junk
        values.requires_grad_()
    result = loss(*inputs, mask=mask)
    result.backward()
    assert result.item() == pytest.approx(expected)
    for values in inputs:
        assert values.grad is not None
        assert values.grad.isfinite().all()
        assert (values.grad[mask != 1] == 0).all()


@every_loss
@pytest.mark.parametrize("batch", [0, 3])
def test_no_pair_gives_zero_attached_to_the_graph(
    loss: Callable[..., torch.Tensor], num_inputs: int, batch: int
) -> None:
    inputs = [torch.full((batch,), math.nan, requires_grad=True) for _ in range(num_inputs)]
    result = loss(*inputs, mask=torch.zeros(batch))
    result.backward()
    assert result.item() == 0.0
    assert torch.equal(inputs[0].grad, torch.zeros(batch))
    assert loss(*[torch.zeros(0)] * num_inputs).item() == 0.0


@every_loss
def test_splitting_the_batch_changes_nothing(loss: Callable[..., torch.Tensor], num_inputs: int) -> None:
    inputs = pairs(num_inputs)
    parts = sum(loss(*[values[rows] for values in inputs], reduction="sum") for rows in (slice(1), slice(1, 4)))
    assert loss(*inputs, reduction="sum").item() == pytest.approx(float(parts))
    assert loss(*inputs).item() == pytest.approx(float(parts) / 4)
    assert loss(*inputs, reduction="none").sum().item() == pytest.approx(float(parts))


@every_loss
def test_bfloat16_is_computed_in_float32(loss: Callable[..., torch.Tensor], num_inputs: int) -> None:
    inputs = pairs(num_inputs, dtype=torch.bfloat16)
    result = loss(*inputs)
    assert result.dtype == torch.float32
    assert result.item() == pytest.approx(loss(*[values.double() for values in inputs]).item(), rel=1e-5)


@pytest.mark.parametrize("difference", [1e4, -1e4])
def test_large_differences_do_not_overflow(difference: float) -> None:
    chosen = torch.tensor([difference], requires_grad=True)
    loss = simpo_loss(chosen, torch.zeros(1))
    loss.backward()
    assert loss.item() == pytest.approx(max(0.0, -2 * difference + 1))
    assert chosen.grad is not None
    assert chosen.grad.isfinite().all()


def test_a_response_without_tokens_is_left_out_by_the_mask() -> None:
    """Truncation took a whole response: not a loss of NaN, nor a pair with a reward of 0 (B43, B47)."""
    logits = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    ids = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 4]])
    averages, counts = [], []
    for mask in ([[0, 0, 1, 1], [0, 0, 0, 0]], [[0, 1, 1, 0], [0, 0, 1, 1]]):
        logprobs, scored = target_logprobs(logits, ids, torch.tensor(mask))
        averages.append(avg_sequence_logprob(logprobs, scored))
        counts.append(scored.sum(-1) > 0)
    loss = simpo_loss(*averages, mask=counts[0] & counts[1])
    loss.backward()
    assert loss.item() == pytest.approx(simpo_loss(averages[0][:1], averages[1][:1]).item())
    assert logits.grad is not None
    assert (logits.grad[1] == 0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: simpo_loss(torch.zeros(2), torch.zeros(3)), r"rejected_avg_logprobs \(3,\)"),
        (lambda: dpo_loss(*[torch.zeros(2)] * 3, torch.zeros(1)), r"rejected_ref_logprobs \(1,\)"),
        (lambda: ipo_loss(*[torch.zeros(2)] * 4, beta=0.0), "beta must be above 0, got 0.0"),
        (lambda: dpo_loss(*[torch.zeros(2)] * 4, reduction="avg"), "reduction must be one of"),
        (lambda: simpo_loss(torch.zeros(2), torch.zeros(2), mask=torch.ones(3)), r"mask must have shape \(2,\)"),
    ],
)
def test_bad_input_is_named(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
