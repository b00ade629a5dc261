"""The three-channel loss of a batch as one free function, without TRL: the harness that channels are checked against.

    total = lm_ce + alpha_sdpo * sdpo_jsd + beta_replay * trace_replay_dpo

lm_ce stands in for the policy objective: next-token cross-entropy on response tokens, the limit that GRPO tends to
when only imitation is left. The other two are self-distillation towards the model's own distribution in a context
that holds a hint, and preference pairs from replayed traces. Contract of the reference API; the losses are those of
this package, with their sources.

Alignment of the distillation. With inputs of equal length and no `sdpo_student_mask`, the mask is read as the
reference reads it: unshifted, a 1 at j compares the two distributions behind position j. With `sdpo_student_mask`,
lengths may differ and both masks are shifted: the i-th marked token of a row of either side is the same token, and
the logits before it are compared.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F

from composer_rl.ops.entropy_aware_opd import entropy_aware_opd_loss
from composer_rl.ops.generalized_jsd import generalized_jsd_loss
from composer_rl.ops.logprobs import at_least_float32, avg_sequence_logprob, sequence_logprob, target_logprobs
from composer_rl.ops.preferences import dpo_loss, simpo_loss
from composer_rl.ops.reductions import IGNORE_INDEX, Selection, active_positions
from composer_rl.ops.taid import check_t, taid_loss

_LOG = logging.getLogger(__name__)

Inputs = Mapping[str, torch.Tensor]


@dataclass
class LossComponents:
    """The channels of one `compose_loss`, each a scalar tensor, unweighted, attached to the graph."""

    lm_ce: torch.Tensor
    """Cross-entropy of the response tokens, nats a token."""
    sdpo_jsd: torch.Tensor
    """Divergence from the hinted teacher, nats a token; 0 where the channel is off."""
    trace_replay_dpo: torch.Tensor
    """Preference loss, mean over pairs; 0 where the channel is off."""
    total: torch.Tensor
    """Weighted sum of the three: what to call backward on."""

    def detached(self) -> dict[str, float]:
        """All four as plain numbers by their names, for logging."""
        return {name: value.detach().item() for name, value in vars(self).items()}


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """The keyword arguments of `compose_loss` that its channels read."""

    sdpo_jsd_beta: float
    sdpo_temperature: float
    sdpo_token_clip: float | None
    taid_t: float | None
    entropy_opd_h_max: float | None
    replay_dpo_beta: float
    simpo_beta: float
    simpo_gamma: float


def _jsd(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor | None, using: _Settings) -> torch.Tensor:
    labels = None if mask is None else torch.where(active_positions(mask), 1, IGNORE_INDEX)
    return generalized_jsd_loss(
        student,
        teacher,
        labels,
        beta=using.sdpo_jsd_beta,
        temperature=using.sdpo_temperature,
        token_clip=using.sdpo_token_clip,
    )


def _taid(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor | None, using: _Settings) -> torch.Tensor:
    assert using.taid_t is not None, "checked by compose_loss"
    return taid_loss(student, teacher, mask, t=using.taid_t)


def _entropy_opd(
    student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor | None, using: _Settings
) -> torch.Tensor:
    return entropy_aware_opd_loss(
        student, teacher, labels=mask, h_max=using.entropy_opd_h_max, temperature=using.sdpo_temperature
    )


@dataclass(frozen=True)
class _Wrapper:
    """One value of `sdpo_wrapper`."""

    loss: Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None, _Settings], torch.Tensor]
    needs: tuple[str, ...]
    """Keys without which the channel is off."""


SDPO_WRAPPERS = {
    "none": _Wrapper(_jsd, ("ctx_teacher_input_ids", "sdpo_loss_mask")),
    "taid": _Wrapper(_taid, ("ctx_teacher_input_ids",)),
    "entropy_opd": _Wrapper(_entropy_opd, ("ctx_teacher_input_ids", "sdpo_loss_mask")),
}

_PAIR_KEYS = (
    "dpo_chosen_input_ids",
    "dpo_chosen_response_mask",
    "dpo_rejected_input_ids",
    "dpo_rejected_response_mask",
)


def _dpo(scores: Mapping[str, torch.Tensor], pairs: torch.Tensor, inputs: Inputs, using: _Settings) -> torch.Tensor:
    return dpo_loss(
        scores["chosen"],
        scores["rejected"],
        inputs["dpo_chosen_ref_logprobs"],
        inputs["dpo_rejected_ref_logprobs"],
        beta=using.replay_dpo_beta,
        mask=pairs,
    )


def _simpo(scores: Mapping[str, torch.Tensor], pairs: torch.Tensor, inputs: Inputs, using: _Settings) -> torch.Tensor:
    return simpo_loss(scores["chosen"], scores["rejected"], beta=using.simpo_beta, gamma=using.simpo_gamma, mask=pairs)


@dataclass(frozen=True)
class _Variant:
    """One value of `dpo_variant`."""

    score: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    """Log-probabilities (B, T-1) and mask to one score a sequence (B,)."""
    loss: Callable[[Mapping[str, torch.Tensor], torch.Tensor, Inputs, _Settings], torch.Tensor]
    """Scores by side, pairs that count (B,) bool, batch and settings to a scalar."""
    needs: tuple[str, ...]
    """Keys without which the channel is off."""


DPO_VARIANTS = {
    "dpo": _Variant(sequence_logprob, _dpo, (*_PAIR_KEYS, "dpo_chosen_ref_logprobs", "dpo_rejected_ref_logprobs")),
    "simpo": _Variant(avg_sequence_logprob, _simpo, _PAIR_KEYS),
}


def compose_loss(
    model: torch.nn.Module,
    inputs: dict[str, torch.Tensor],
    *,
    alpha_sdpo: float = 0.1,
    beta_replay: float = 0.05,
    sdpo_jsd_beta: float = 0.5,
    sdpo_temperature: float = 1.0,
    sdpo_token_clip: float | None = None,
    replay_dpo_beta: float = 0.1,
    lm_ce_label_smoothing: float = 0.0,
    dpo_variant: Literal["dpo", "simpo"] = "dpo",
    sdpo_wrapper: Literal["none", "taid", "entropy_opd"] = "none",
    taid_t: float | None = None,
    simpo_beta: float = 2.0,
    simpo_gamma: float = 1.0,
    entropy_opd_h_max: float | None = None,
) -> LossComponents:
    """Forward the model on a batch and put its loss together.

    A channel whose weight is 0, or whose inputs are not all there, is off: 0, and no forward. So is the distillation
    where lengths differ and no `sdpo_student_mask` says what belongs together, with a warning.

    Args:
        model: a causal language model; `model(input_ids=...)` has `.logits`.
        inputs: the batch. Ids are int64; in masks 1 = counts, 0 and -100 = does not. Required: input_ids (B, T_s),
            response_mask (B, T_s; 1 = the token is a target). Optional, for the distillation: ctx_teacher_input_ids
            (B, T_t), sdpo_loss_mask (B, T_t; taid takes all positions without it), sdpo_student_mask (B, T_s). For
            the pairs: dpo_chosen_input_ids and dpo_rejected_input_ids (P, T), dpo_chosen_response_mask and
            dpo_rejected_response_mask (P, T; 1 = the token is a target), and for dpo dpo_chosen_ref_logprobs and
            dpo_rejected_ref_logprobs (P,), sums in nats under the frozen reference.
        alpha_sdpo: weight of the distillation; 0 switches it off.
        beta_replay: weight of the pairs; 0 switches them off.
        sdpo_jsd_beta: beta of `generalized_jsd_loss`; wrapper none only.
        sdpo_temperature: softmax temperature of the distillation; not read by taid.
        sdpo_token_clip: limit of each token's divergence in nats; wrapper none only. None = no limit.
        replay_dpo_beta: beta of `dpo_loss`.
        lm_ce_label_smoothing: share of each target's mass spread over the vocabulary, in [0, 1].
        dpo_variant: dpo or simpo.
        sdpo_wrapper: none = generalised JSD; taid; entropy_opd = entropy-aware mixture of the two KL divergences.
        taid_t: interpolation coefficient in [0, 1]; required by taid (`TAIDScheduler.t`).
        simpo_beta: beta of `simpo_loss`.
        simpo_gamma: target margin of `simpo_loss`.
        entropy_opd_h_max: entropy in nats from which on entropy_opd is forward KL alone; None = ln V.

    Returns:
        The channels, unweighted, and their weighted sum. A channel in which nothing counts is 0, attached to the graph.

    Raises:
        KeyError: a required key is missing.
        ValueError: a setting is unknown or out of range, taid without taid_t, shapes do not fit, or the two masks of
            the distillation mark different numbers of tokens in a row.
    """
    variant, wrapper = _chosen(DPO_VARIANTS, dpo_variant=dpo_variant), _chosen(SDPO_WRAPPERS, sdpo_wrapper=sdpo_wrapper)
    if taid_t is not None:
        check_t(taid_t, name="taid_t")
    elif sdpo_wrapper == "taid":
        raise ValueError("sdpo_wrapper='taid' needs taid_t, the current interpolation coefficient in [0, 1]")
    for key in ("input_ids", "response_mask"):
        if key not in inputs:
            raise KeyError(f"inputs has no {key}, which compose_loss needs; it has {sorted(inputs)}")
    using = _Settings(
        sdpo_jsd_beta=sdpo_jsd_beta,
        sdpo_temperature=sdpo_temperature,
        sdpo_token_clip=sdpo_token_clip,
        taid_t=taid_t,
        entropy_opd_h_max=entropy_opd_h_max,
        replay_dpo_beta=replay_dpo_beta,
        simpo_beta=simpo_beta,
        simpo_gamma=simpo_gamma,
    )
    logits = model(input_ids=inputs["input_ids"]).logits
    lm_ce = _response_cross_entropy(logits, inputs, lm_ce_label_smoothing)
    # A channel that is off is 0 and keeps a graph, so that backward on it alone does not fail.
    off = torch.where(torch.zeros_like(lm_ce, dtype=torch.bool), lm_ce, 0)
    sdpo_on = alpha_sdpo != 0 and inputs.keys() >= set(wrapper.needs) and _alignable(inputs)
    sdpo_jsd = _distillation(model, logits, inputs, wrapper, using) if sdpo_on else off
    replay_on = beta_replay != 0 and inputs.keys() >= set(variant.needs)
    trace_replay_dpo = _preferences(model, inputs, variant, using) if replay_on else off
    total = lm_ce + alpha_sdpo * sdpo_jsd + beta_replay * trace_replay_dpo
    return LossComponents(lm_ce=lm_ce, sdpo_jsd=sdpo_jsd, trace_replay_dpo=trace_replay_dpo, total=total)


def _chosen(table: dict[str, Any], **option: str) -> Any:
    ((name, value),) = option.items()
    if value not in table:
        raise ValueError(f"{name} must be one of {', '.join(table)}, got {value!r}")
    return table[value]


def _response_cross_entropy(logits: torch.Tensor, inputs: Inputs, label_smoothing: float) -> torch.Tensor:
    """Mean next-token cross-entropy of the response tokens, nats; logits (B, T, V)."""
    targets = inputs["input_ids"][:, 1:]
    tokens = Selection.of_mask(inputs["response_mask"][:, 1:], targets.shape, name="response_mask (without column 0)")
    (rows,) = at_least_float32(tokens.pick(logits[:, :-1]))
    losses = F.cross_entropy(rows, tokens.pick(targets), label_smoothing=label_smoothing, reduction="none")
    return tokens.reduce(losses, "batchmean")


def _alignable(inputs: Inputs) -> bool:
    """Whether it is known which positions of student and teacher belong together."""
    shapes = [tuple(inputs[key].shape) for key in ("input_ids", "ctx_teacher_input_ids")]
    if "sdpo_student_mask" in inputs or shapes[0] == shapes[1]:
        return True
    _LOG.warning(
        "the SDPO channel is off: input_ids %s and ctx_teacher_input_ids %s differ in shape; "
        "make them equal or pass sdpo_student_mask",
        *shapes,
    )
    return False


def _distillation(
    model: torch.nn.Module, logits: torch.Tensor, inputs: Inputs, wrapper: _Wrapper, using: _Settings
) -> torch.Tensor:
    with torch.no_grad():
        teacher = model(input_ids=inputs["ctx_teacher_input_ids"]).logits
    mask = inputs.get("sdpo_loss_mask")
    if "sdpo_student_mask" not in inputs:
        Selection.of_mask(mask, teacher.shape[:-1], name="sdpo_loss_mask")
        return wrapper.loss(logits, teacher, mask, using)
    if mask is None:
        raise ValueError("sdpo_student_mask needs sdpo_loss_mask, the same tokens in ctx_teacher_input_ids")
    sides = [
        Selection.of_mask(marks[:, 1:], ids[:, 1:].shape, name=f"{name} (without column 0)")
        for name, marks, ids in (
            ("sdpo_student_mask", inputs["sdpo_student_mask"], inputs["input_ids"]),
            ("sdpo_loss_mask", mask, inputs["ctx_teacher_input_ids"]),
        )
    ]
    counts = [active_positions(side.active).sum(-1).tolist() for side in sides if side.active is not None]
    if counts[0] != counts[1]:
        raise ValueError(
            f"sdpo_student_mask and sdpo_loss_mask must mark equally many tokens in every row, got {counts[0]} and "
            f"{counts[1]} (a 1 in column 0 does not count: nothing scores the first token)"
        )
    return wrapper.loss(sides[0].pick(logits[:, :-1]), sides[1].pick(teacher[:, :-1]), None, using)


def _preferences(model: torch.nn.Module, inputs: Inputs, variant: _Variant, using: _Settings) -> torch.Tensor:
    scores, nonempty = {}, {}
    for side in ("chosen", "rejected"):
        ids = inputs[f"dpo_{side}_input_ids"]
        logprobs, scored = target_logprobs(model(input_ids=ids).logits, ids, inputs[f"dpo_{side}_response_mask"])
        scores[side] = variant.score(logprobs, scored)
        nonempty[side] = active_positions(scored).any(-1)
    # Truncation can leave a side without a token; a score of 0 would then be the best there is.
    return variant.loss(scores, nonempty["chosen"] & nonempty["rejected"], inputs, using)
