"""Entropy-aware on-policy distillation: forward KL where the teacher is unsure, reverse KL where it is sure.

    w = clamp(H(T) / h_max, 0, 1),   L = w KL(T || S) + (1 - w) KL(S || T)        for each token

After Jin et al., arXiv 2603.07079, which add the forward KL to the reverse one where the teacher's entropy is above a
threshold. The smooth gate is the one of the reference API; it is the departure from the paper. Both distributions and
the entropy are taken at the same temperature.
"""

from __future__ import annotations

import math

import torch

from composer_rl.ops.logprobs import at_least_float32, log_softmax
from composer_rl.ops.reductions import Selection, check_reduction, check_same_shape


def teacher_entropy(teacher_logits: torch.Tensor) -> torch.Tensor:
    """Entropy of each token's distribution: logits (B, T, V), or (..., V), to (B, T), or (...), nats, at least float32.

    Divide the logits by the temperature first where there is one. Between 0 and ln V.
    """
    (logits,) = at_least_float32(teacher_logits)
    return _entropy(log_softmax(logits))


def _entropy(logprobs: torch.Tensor) -> torch.Tensor:
    return -(logprobs.exp() * logprobs).sum(-1)


def entropy_aware_per_token(
    student: torch.Tensor, teacher: torch.Tensor, *, h_max: float | None = None, temperature: float = 1.0
) -> torch.Tensor:
    """(N, V) logits of student and teacher to (N,) losses in nats; settings as in `entropy_aware_opd_loss`."""
    student, teacher = (log_softmax(side / temperature) for side in at_least_float32(student, teacher))
    # One token alone has entropy 0 of at most 0; both KL are 0 there, so any divisor does.
    most = h_max if h_max is not None else math.log(student.size(-1)) or 1.0
    weight = (_entropy(teacher) / most).clamp(0, 1)
    forward = (teacher.exp() * (teacher - student)).sum(-1)
    reverse = (student.exp() * (student - teacher)).sum(-1)
    return weight * forward + (1 - weight) * reverse


def entropy_aware_opd_loss(
    student_logits: torch.Tensor,
    teacher_logits: torch.Tensor,
    *,
    labels: torch.Tensor | None = None,
    h_max: float | None = None,
    temperature: float = 1.0,
    reduction: str = "batchmean",
) -> torch.Tensor:
    """Mixture of forward and reverse KL, gated token by token by the teacher's entropy.

    Args:
        student_logits: (B, T, V), any floating dtype; at least float32 inside, float64 stays.
        teacher_logits: (B, T, V), aligned with the student's. Not detached here.
        labels: (B, T) mask, 1 = the token counts; 0 and -100 entries may hold NaN logits. Not token ids, unlike the
            labels of `generalized_jsd_loss`. None = every token counts.
        h_max: entropy in nats from which on the loss is forward KL alone, above 0; None = ln V, the largest there is.
        temperature: divides both logits before the softmax; above 0.
        reduction: batchmean and mean = sum / active tokens (a token is one element here); sum; none = (B, T) with 0
            at tokens that do not count.

    Returns:
        Scalar in nats (or (B, T) for none); 0 attached to the graph where nothing is active.

    Raises:
        ValueError: shapes differ, a setting is out of range, or the reduction is unknown.
    """
    check_reduction(reduction)
    check_same_shape(student_logits=student_logits, teacher_logits=teacher_logits)
    if h_max is not None and not h_max > 0:
        raise ValueError(f"h_max must be above 0 or None, got {h_max}")
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    tokens = Selection.of_mask(labels, student_logits.shape[:-1], name="labels")
    losses = entropy_aware_per_token(
        tokens.pick(student_logits), tokens.pick(teacher_logits), h_max=h_max, temperature=temperature
    )
    return tokens.reduce(losses, reduction)
