"""Log-probabilities: in at least float32, of whole rows, of given tokens, and of sequences.

Alignment of the token functions: a mask's 1 at position j marks token j as a target, which the logits at j - 1 score.
The first token of a row has no score, so a 1 there counts neither as a term nor in a divisor.
"""

from __future__ import annotations

import torch

from composer_rl.ops.reductions import Selection, check_same_shape, masked_mean, masked_sum


def at_least_float32(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Cast all tensors to one dtype: float32, or float64 if any of them is float64."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return tuple(tensor.to(dtype) for tensor in tensors)


def log_floor(dtype: torch.dtype) -> float:
    """The finite number that stands for log 0.

    exp of it is exactly 0, and 0 * (floor - x) is 0 where 0 * (-inf - x) would be NaN, in the gradient too. A model
    whose head forbids tokens with -inf is thereby a distribution like any other.
    """
    return torch.finfo(dtype).min / 4


def log_softmax(scores: torch.Tensor) -> torch.Tensor:
    """Log-softmax over the last dimension, with log 0 as `log_floor`; the dtype stays, so upcast before."""
    return scores.log_softmax(-1).clamp(min=log_floor(scores.dtype))


def log_of_probs(probs: torch.Tensor) -> torch.Tensor:
    """Logarithm with log 0 as `log_floor` and a gradient of 0 there (1/0 otherwise)."""
    positive = probs > 0
    return torch.where(positive, torch.where(positive, probs, 1).log(), log_floor(probs.dtype))


def target_logprobs(
    logits: torch.Tensor, input_ids: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each marked token under the logits one position before it.

    Args:
        logits: (B, T, V) of the forward over `input_ids`, any floating dtype.
        input_ids: (B, T) int64.
        mask: (B, T), 1 = the token at this position is a target.

    Returns:
        Log-probabilities (B, T-1) in nats, at least float32, 0 where nothing is marked; and the mask (B, T-1) that
        says where they count, both for the tokens input_ids[:, 1:].

    Raises:
        ValueError: shapes do not fit.
    """
    check_same_shape(input_ids=input_ids, mask=mask)
    if logits.shape[:-1] != input_ids.shape:
        raise ValueError(
            f"logits must have shape (B, T, V) with (B, T) = {tuple(input_ids.shape)}, got {tuple(logits.shape)}"
        )
    targets = input_ids[:, 1:]
    tokens = Selection.of_mask(mask[:, 1:], targets.shape)
    (rows,) = at_least_float32(tokens.pick(logits[:, :-1]))
    picked = log_softmax(rows).gather(-1, tokens.pick(targets).unsqueeze(-1)).squeeze(-1)
    return tokens.spread(picked), mask[:, 1:]


def sequence_logprob(model_logprobs: torch.Tensor, response_mask: torch.Tensor) -> torch.Tensor:
    """Sum of log-probabilities over the response: (B, T) with mask (B, T; 1 = response token) to (B,) nats.

    What DPO takes. 0 for a row without response tokens; at least float32; ValueError where shapes differ.
    """
    (logprobs,) = at_least_float32(model_logprobs)
    return masked_sum(logprobs, response_mask)


def avg_sequence_logprob(model_logprobs: torch.Tensor, response_mask: torch.Tensor) -> torch.Tensor:
    """Mean log-probability over the response tokens of each sequence, the reward of SimPO (arXiv 2405.14734, eq. 3).

    Args:
        model_logprobs: (B, T) log-probability of each token in nats; what stands under a 0 of the mask is ignored.
        response_mask: (B, T), 1 = response token. It must be aligned with the log-probabilities (shifted like them,
            see `target_logprobs`): the divisor is the number of its ones, so a 1 on a token without a score would
            shorten the mean.

    Returns:
        (B,) in nats, at least float32; 0 for a row without response tokens.

    Raises:
        ValueError: shapes differ.
    """
    (logprobs,) = at_least_float32(model_logprobs)
    return masked_mean(logprobs, response_mask)
