"""The knobs of a policy objective: which metric shows that each one acted, and why it cannot under some settings.

While every row is used once, right after it was sampled, every ratio is 1 and the clips, sapo's gate and vespo's
weight change nothing. Three settings act on-policy all the same: use_bias_correction_kl (its factor 1 has a
gradient), off_policy_mask_threshold (it compares with the sampler's log-probs), and a cispo cap below 1 (which
`PolicyObjective` refuses, since it scales every gradient).

Settings that act by construction have no row: loss_type, num_generations, num_iterations, updates_per_rollout,
cast_lm_head_to_fp32, multi_objective_aggregation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from composer_rl.engagement import Knob
from composer_rl.po.checks import CLIPPED_LOSSES

if TYPE_CHECKING:
    from composer_rl.po.base import PolicyObjective

_ON_POLICY = (
    "fully on-policy: updates_per_rollout=1 and num_iterations=1, every ratio is 1; set po.updates_per_rollout above 1"
)
_RATIO_ADVICE = "no ratio moved that far: raise po.updates_per_rollout or the learning rate, or narrow the bound"

ROWS_SKIPPED = "policy/rows_skipped"
"""Share of rows left out of forward and backward for lack of reward variance."""
RATIO_MAX = "policy/ratio_max"
"""Largest importance ratio of a step; needed by delta."""
LOG_RATIO = "policy/log_ratio_abs_mean"
"""Mean absolute log-ratio of a step; needed by sapo."""
ENTROPY_MASKED = "policy/entropy_masked_share"
"""Share of tokens that top_entropy_quantile removes."""
OFF_POLICY_MASKED = "policy/off_policy_masked_share"
"""Share of rows that off_policy_mask_threshold removes."""
SAMPLING_MASKED = "sampling/masked_share"
"""Share of loss tokens that the correction of the vLLM sampler removes."""
OVERLONG_SHARE = "overlong_penalty/penalized_share"
"""Share of completions that the soft over-long punishment reaches."""
DYNAMIC_SAMPLING_ROUNDS = "dynamic_sampling/rounds"
"""Rollout rounds of a batch, the first one included."""


def objective_knobs(objective: PolicyObjective) -> list[Knob]:
    """Knobs of every setting of the objective that is switched on."""
    return [*_ratio_knobs(objective), *_kl_knobs(objective), *_reward_knobs(objective), *_token_knobs(objective)]


def _ratio_knobs(objective: PolicyObjective) -> Iterator[Knob]:
    inert = _ON_POLICY if objective.is_on_policy else None
    loss_type = objective.loss_type
    if loss_type in CLIPPED_LOSSES:
        for name, metric in (("epsilon", "clip_ratio/low_mean"), ("epsilon_high", "clip_ratio/high_mean")):
            yield Knob(name=name, metric=metric, inert_reason=inert, advice=_RATIO_ADVICE)
        if objective.importance_sampling_level == "sequence":
            yield Knob(
                name="importance_sampling_level",
                metric="clip_ratio/region_mean",
                inert_reason=inert,
                advice=_RATIO_ADVICE,
            )
    elif loss_type == "cispo":
        yield Knob(name="epsilon_high", metric="cispo_clip_ratio", inert_reason=inert, advice=_RATIO_ADVICE)
    elif loss_type == "sapo":
        yield Knob(name="sapo_temperature", metric=LOG_RATIO, inert_reason=inert, tolerance=1e-6)
    elif loss_type == "vespo":
        yield Knob(
            name="vespo_phi",
            metric="vespo/phi_seq_mean",
            acts="away",
            threshold=1.0,
            tolerance=1e-5,
            inert_reason=inert,
        )
    if objective.delta is not None:
        yield Knob(
            name="delta",
            metric=RATIO_MAX,
            threshold=objective.delta,
            inert_reason=inert,
            advice=f"no ratio passed delta={objective.delta:g}",
        )
    if objective.off_policy_mask_threshold is not None:
        yield Knob(
            name="off_policy_mask_threshold",
            metric=OFF_POLICY_MASKED,
            advice="no row with negative advantage drifted that far from its sampler",
        )
    if objective.vllm_importance_sampling_correction:
        yield Knob(
            name="vllm_importance_sampling_correction",
            metric="sampling/importance_sampling_ratio/mean",
            acts="away",
            threshold=1.0,
            tolerance=1e-6,
            optional=True,
        )
        if objective.vllm_importance_sampling_mode.endswith("mask"):
            yield Knob(
                name="vllm_importance_sampling_mode",
                metric=SAMPLING_MASKED,
                advice="no weight left its bounds",
                optional=True,
            )


def _kl_knobs(objective: PolicyObjective) -> Iterator[Knob]:
    if objective.beta == 0.0:
        return
    yield Knob(name="beta", metric="kl", advice="the policy did not leave its reference")
    if objective.use_bias_correction_kl:
        yield Knob(name="use_bias_correction_kl", metric="kl", advice="it multiplies a KL term that stayed at 0")


def _reward_knobs(objective: PolicyObjective) -> Iterator[Knob]:
    if objective.scale_rewards != "none" or objective.multi_objective_aggregation == "normalize_then_sum":
        yield Knob(
            name="scale_rewards",
            metric="frac_reward_zero_std",
            acts="below",
            threshold=1.0,
            advice="no group had two different rewards",
        )
    if objective.overlong_penalty is not None:
        yield Knob(
            name="overlong_penalty",
            metric=OVERLONG_SHARE,
            advice="no completion reached the ramp before the length limit",
        )
    if objective.dynamic_sampling == "resample":
        yield Knob(
            name="dynamic_sampling",
            metric=DYNAMIC_SAMPLING_ROUNDS,
            threshold=1.0,
            advice="every group of every first round had reward variance",
        )
    elif objective.dynamic_sampling == "drop":
        yield Knob(name="dynamic_sampling", metric=ROWS_SKIPPED, advice="every group had reward variance")
    elif objective.skip_zero_variance:
        yield Knob(
            name="skip_zero_variance",
            metric=ROWS_SKIPPED,
            inert_reason=_skip_blocker(objective),
            advice="every group had reward variance",
        )


def _skip_blocker(objective: PolicyObjective) -> str | None:
    blockers = {
        "po.beta is above 0 and the KL term acts on every row": objective.beta != 0.0,
        "po.entropy_coef is not 0 and the entropy bonus acts on every row": objective.entropy_coef != 0.0,
        "po.top_entropy_quantile takes its threshold over every row": objective.top_entropy_quantile < 1.0,
        "po.multi_objective_aggregation centres advantages over the batch": (
            objective.multi_objective_aggregation == "normalize_then_sum"
        ),
    }
    active = [reason for reason, blocks in blockers.items() if blocks]
    return "; ".join(active) or None


def _token_knobs(objective: PolicyObjective) -> Iterator[Knob]:
    if objective.mask_truncated_completions:
        yield Knob(
            name="mask_truncated_completions",
            metric="completions/clipped_ratio",
            advice="no completion hit the length limit",
        )
    if objective.top_entropy_quantile < 1.0:
        yield Knob(name="top_entropy_quantile", metric=ENTROPY_MASKED)
    if objective.entropy_coef != 0.0:
        yield Knob(name="entropy_coef", metric="entropy", advice="the policy had no entropy left")
