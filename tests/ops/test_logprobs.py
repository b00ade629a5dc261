"""Log-probabilities of rows, tokens and sequences."""

from __future__ import annotations

import math

import pytest
import torch

from composer_rl.ops.logprobs import (
    at_least_float32,
    avg_sequence_logprob,
    log_of_probs,
    log_softmax,
    sequence_logprob,
    target_logprobs,
)


def test_precision_is_at_least_float32_and_common() -> None:
    half, double = torch.ones(1, dtype=torch.bfloat16), torch.ones(1, dtype=torch.float64)
    assert [tensor.dtype for tensor in at_least_float32(half, torch.ones(1))] == [torch.float32] * 2
    assert [tensor.dtype for tensor in at_least_float32(half, double)] == [torch.float64] * 2


def test_forbidden_tokens_are_a_finite_log_zero_without_a_gradient() -> None:
    logits = torch.tensor([0.0, 0.0, -math.inf], requires_grad=True)
    logprobs = log_softmax(logits)
    (logprobs.exp() * logprobs).sum().backward()
    assert logprobs.exp().tolist() == [0.5, 0.5, 0.0]
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    probs = torch.tensor([1.0, 0.0], requires_grad=True)
    logarithm = log_of_probs(probs)
    logarithm.sum().backward()
    assert logarithm.exp().tolist() == [1.0, 0.0]
    assert probs.grad is not None
    assert probs.grad.tolist() == [1.0, 0.0]


def test_a_token_is_scored_by_the_position_before_it() -> None:
    logits = torch.tensor([[[0.0, math.log(3)], [math.log(7), 0.0], [math.nan, math.nan]]], requires_grad=True)
    logprobs, mask = target_logprobs(logits, torch.tensor([[0, 1, 0]]), torch.tensor([[1, 1, 1]]))
    assert logprobs.exp().tolist()[0] == pytest.approx([3 / 4, 7 / 8])
    assert mask.tolist() == [[1, 1]]
    logprobs.sum().backward()
    assert logits.grad is not None
    assert logits.grad[0, 2].tolist() == [0.0, 0.0]


def test_logits_under_the_mask_do_not_matter() -> None:
    logits = torch.full((1, 3, 2), math.nan)
    logits[0, 1] = 0.0
    logprobs, mask = target_logprobs(logits, torch.tensor([[0, 1, 0]]), torch.tensor([[1, 0, 1]]))
    assert logprobs.tolist() == [[0.0, pytest.approx(-math.log(2))]]
    assert avg_sequence_logprob(logprobs, mask).tolist() == pytest.approx([-math.log(2)])


def test_the_divisor_counts_scored_tokens_only() -> None:
    """A response mask of three ones of which the first token has no score: two terms, divided by two (B44)."""
    ids = torch.tensor([[1, 0, 1]])
    logprobs, mask = target_logprobs(torch.zeros(1, 3, 2), ids, torch.ones(1, 3))
    assert avg_sequence_logprob(logprobs, mask).tolist() == pytest.approx([-math.log(2)])
    assert sequence_logprob(logprobs, mask).tolist() == pytest.approx([-2 * math.log(2)])


def test_sequences_by_hand() -> None:
    logprobs = torch.tensor([[-1.0, -2.0, math.nan], [-4.0, -math.inf, -6.0], [math.nan] * 3])
    mask = torch.tensor([[1, 1, 0], [1, -100, 1], [0, 0, 0]])
    assert avg_sequence_logprob(logprobs, mask).tolist() == [-1.5, -5.0, 0.0]
    assert sequence_logprob(logprobs, mask).tolist() == [-3.0, -10.0, 0.0]


def test_sequences_of_bfloat16_are_summed_in_float32() -> None:
    logprobs = torch.full((1, 1000), -1.0, dtype=torch.bfloat16)
    logprobs[0, 0] = -0.5
    total = sequence_logprob(logprobs, torch.ones(1, 1000))
    assert total.dtype == torch.float32
    assert total.item() == -999.5


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(ValueError, match=r"input_ids \(1, 3\), mask \(1, 2\)"):
        target_logprobs(torch.zeros(1, 3, 2), torch.zeros(1, 3, dtype=torch.long), torch.ones(1, 2))
    with pytest.raises(ValueError, match="logits must have shape"):
        target_logprobs(torch.zeros(1, 2, 2), torch.zeros(1, 3, dtype=torch.long), torch.ones(1, 3))
    with pytest.raises(ValueError, match="shapes must be equal"):
        avg_sequence_logprob(torch.zeros(1, 2), torch.ones(1, 3))
