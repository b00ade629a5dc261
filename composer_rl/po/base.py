"""The policy objective: one dataclass, of which every named method (grpo, dapo, gspo, ...) is a YAML of values.

The loss itself is TRL 1.16's `GRPOTrainer._compute_loss`; this class holds what selects and shapes it. With the
ratio r = exp(log pi - log pi_old) and the advantage A of a row, the term of one token is

    grpo, bnpo, dr_grpo, dapo, luspo    -min(r A, clip(r, 1 - epsilon, 1 + epsilon_high) A)
    cispo                               -stop_gradient(min(r, epsilon_high)) A log pi
    sapo                                -4 / tau * sigmoid(tau (r - 1)) A
    vespo                               -stop_gradient(phi(w)) A log pi,  phi(w) = w^k e^(lambda (1 - w)),  w = prod r

and the sum over tokens is divided by: tokens of the row, then rows (grpo, sapo); rows only (luspo); tokens of the
micro-batch (bnpo); rows x max_completion_length (dr_grpo); tokens of the accumulation window (dapo, cispo, vespo).

Departures from TRL's GRPOConfig:
- Range and combination checks run here, before torch is imported, and refuse settings that TRL only warns about or
  ignores (luspo at token level, a clip bound that the loss type does not read, cispo without its cap).
- `updates_per_rollout` counts optimizer steps per rollout; TRL's steps_per_generation counts micro-batches.
- Dynamic sampling, the soft over-long penalty and the skipping of zero-variance rows are not in TRL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from composer_rl.po import checks
from composer_rl.po.batch import BatchPlan, plan_batch

if TYPE_CHECKING:
    from composer_rl.engagement import Knob

LossType = Literal["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"]
"""Loss types of TRL 1.16."""

_TRL_FIELDS = (
    "loss_type",
    "scale_rewards",
    "importance_sampling_level",
    "epsilon",
    "epsilon_high",
    "delta",
    "beta",
    "use_bias_correction_kl",
    "num_generations",
    "num_iterations",
    "mask_truncated_completions",
    "top_entropy_quantile",
    "entropy_coef",
    "off_policy_mask_threshold",
    "multi_objective_aggregation",
    "sapo_temperature_pos",
    "sapo_temperature_neg",
    "vespo_k_pos",
    "vespo_lambda_pos",
    "vespo_k_neg",
    "vespo_lambda_neg",
    "cast_lm_head_to_fp32",
    "vllm_importance_sampling_correction",
    "vllm_importance_sampling_mode",
    "vllm_importance_sampling_clip_max",
    "vllm_importance_sampling_clip_min",
)
"""Fields that GRPOConfig has under the same name."""


@dataclass(kw_only=True)
class OverlongPenalty:
    """Settings of DAPO's soft over-long punishment (arXiv 2503.14476, equation 13); `rewards/overlong.py` computes it.

    Exactly one of `cache_fraction` and `cache_tokens` is set.
    """

    cache_fraction: float | None = None
    """Length of the ramp as a share of the completion budget, range (0, 1]. Paper: 4096 / 20480 = 0.2."""
    cache_tokens: int | None = None
    """Length of the ramp in tokens, at least 1 and at most the completion budget."""
    weight: float = 1.0
    """Factor of the penalty in the row's reward, above 0. Paper: 1.0, with outcome rewards of -1 and 1."""

    def __post_init__(self) -> None:
        if (self.cache_fraction is None) == (self.cache_tokens is None):
            raise ValueError(
                "cache_fraction and cache_tokens: set exactly one, "
                f"got cache_fraction={self.cache_fraction} and cache_tokens={self.cache_tokens}"
            )
        if self.cache_fraction is not None and not 0.0 < self.cache_fraction <= 1.0:
            raise ValueError(f"cache_fraction must be in (0, 1], got {self.cache_fraction}")
        if self.cache_tokens is not None and self.cache_tokens < 1:
            raise ValueError(f"cache_tokens must be at least 1, got {self.cache_tokens}")
        if not self.weight > 0.0:
            raise ValueError(f"weight must be above 0, got {self.weight}")

    def resolve_cache_tokens(self, max_completion_tokens: int) -> int:
        """Length of the ramp in tokens for a completion budget; at least 1.

        Raises:
            ValueError: when `cache_tokens` is larger than the budget.
        """
        if self.cache_tokens is None:
            assert self.cache_fraction is not None
            return max(1, round(self.cache_fraction * max_completion_tokens))
        if self.cache_tokens > max_completion_tokens:
            raise ValueError(
                f"overlong_penalty.cache_tokens must be at most the completion budget of {max_completion_tokens} "
                f"tokens, got {self.cache_tokens}"
            )
        return self.cache_tokens


@dataclass(kw_only=True)
class PolicyObjective:
    """What the policy gradient maximises, and how often it is applied to one rollout.

    The defaults are Dr. GRPO (arXiv 2503.20783) with TRL's defaults for everything it leaves open.
    """

    loss_type: LossType = "dr_grpo"
    """Form of the token term and its divisor, see the module docstring."""
    scale_rewards: Literal["group", "batch", "none"] = "none"
    """Divide advantages by the standard deviation of the group, of the batch, or not at all (Dr. GRPO)."""
    multi_objective_aggregation: Literal["sum_then_normalize", "normalize_then_sum"] = "sum_then_normalize"
    """With several reward functions: normalise their weighted sum, or each one first (GDPO, arXiv 2601.05242)."""
    importance_sampling_level: Literal["token", "sequence"] = "token"
    """Ratio per token, or the geometric mean of a row's token ratios (GSPO, arXiv 2507.18071)."""
    epsilon: float = 0.2
    """Clip distance below 1, above 0. Read by grpo, bnpo, dr_grpo, dapo and luspo. PPO and most papers: 0.2."""
    epsilon_high: float | None = None
    """Clip distance above 1, above 0; None means `epsilon`. With cispo the absolute cap of the ratio, at least 1.
    DAPO: 0.28; CISPO in ScaleRL (arXiv 2510.13786): 5.0. Refused with sapo and vespo, which do not clip."""
    delta: float | None = None
    """Cap of the unclipped ratio for negative advantages, above 1 + epsilon_high; None leaves it open.
    INTELLECT-2 (arXiv 2505.07291): 4."""
    beta: float = 0.0
    """Weight of the KL term against the initial policy, at least 0; 0 loads no reference model."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of that KL. Only k3, exp(d) - d - 1 with d = log pi_ref - log pi, which TRL computes."""
    use_bias_correction_kl: bool = True
    """Multiply the KL term by the ratio (DeepSeek-V3.2, arXiv 2512.02556). Acts on-policy too when beta > 0."""
    num_generations: int = 8
    """Completions sampled per prompt, at least 2. Dr. GRPO: 8; DAPO and ScaleRL: 16; DeepSeekMath: 64."""
    num_iterations: int = 1
    """Passes over the same rollout, at least 1 (mu of DeepSeekMath)."""
    updates_per_rollout: int = 1
    """Minibatches, each one optimizer step, that a rollout is split into, at least 1. The clips act only when this or
    `num_iterations` is above 1. GSPO: 4; DAPO and MiniMax-M1: 16."""
    mask_truncated_completions: bool = False
    """Leave completions that hit the length limit out of the loss (DAPO's over-long filtering)."""
    overlong_penalty: OverlongPenalty | None = None
    """Soft over-long punishment added to the reward; None adds none."""
    dynamic_sampling: Literal["off", "drop", "resample"] = "off"
    """Groups without reward variance: keep them in the divisor, drop them from it, or sample other prompts in their
    place (DAPO). Quote "off" in YAML, which otherwise reads it as false."""
    dynamic_sampling_max_rounds: int = 4
    """With `resample`: rollout rounds per batch, the first one included, at least 1. DAPO's released recipe: 10."""
    skip_zero_variance: bool = True
    """Spend no forward and backward on rows whose group has no reward variance. Loss and gradient are the same to
    1e-6, since such rows have advantage 0 and stay in the divisor; never done where a term acts on every row."""
    top_entropy_quantile: float = 1.0
    """Share of tokens, by highest entropy, that the policy term keeps, range [0, 1]. Beyond the 80/20 rule
    (arXiv 2506.01939): 0.2."""
    entropy_coef: float = 0.0
    """Weight of the mean token entropy that is subtracted from the loss, finite; 0 adds none."""
    off_policy_mask_threshold: float | None = None
    """Leave out rows with negative advantage whose mean log-ratio of sampler to policy (nats a token) is above this,
    above 0 (DeepSeek-V3.2). The sampler's log-probs are compared, so it can act on-policy too."""
    sapo_temperature_pos: float = 1.0
    """tau of sapo for positive advantages, above 0. Paper (arXiv 2511.20347): 1.0."""
    sapo_temperature_neg: float = 1.05
    """tau of sapo for the other advantages, above 0. Paper: 1.05."""
    vespo_k_pos: float = 2.0
    """k of vespo for non-negative advantages, at least 0. Paper (arXiv 2602.10693): 2.0."""
    vespo_lambda_pos: float = 3.0
    """lambda of vespo for non-negative advantages, above 0. Paper: 3.0."""
    vespo_k_neg: float = 3.0
    """k of vespo for negative advantages, at least 0. Paper: 3.0."""
    vespo_lambda_neg: float = 2.0
    """lambda of vespo for negative advantages, above 0. Paper: 2.0."""
    cast_lm_head_to_fp32: bool = False
    """Compute the logits in float32 (MiniMax-M1, ScaleRL); changes nothing in a float32 model."""
    vllm_importance_sampling_correction: bool = True
    """With vLLM: weight the loss by trainer over sampler probability."""
    vllm_importance_sampling_mode: Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"] = (
        "sequence_mask"
    )
    """Clip that weight or zero it outside its bounds, per token or per sequence. vespo needs a token mode."""
    vllm_importance_sampling_clip_max: float | None = 3.0
    """Upper bound of that weight, above 0; None leaves it open."""
    vllm_importance_sampling_clip_min: float | None = None
    """Lower bound of that weight, at least 0 and below the upper one; None leaves it open."""

    def __post_init__(self) -> None:
        checks.check_ranges(self)
        checks.check_clipping(self)
        checks.check_kl(self)
        checks.check_loss_type(self)
        checks.check_vllm_bounds(self)

    @property
    def effective_epsilon_high(self) -> float:
        """Upper clip distance (cispo: cap of the ratio) after the default is applied."""
        return self.epsilon if self.epsilon_high is None else self.epsilon_high

    @property
    def is_on_policy(self) -> bool:
        """Whether every row is used for one update only, right after it was sampled: then every ratio is 1."""
        return self.num_iterations == 1 and self.updates_per_rollout == 1

    def check_sampling(
        self, *, use_vllm: bool = False, top_p: float = 1.0, top_k: int = 0, min_p: float | None = None
    ) -> None:
        """Refuse sampling settings under which the objective's correction would be biased (huggingface/trl #6789).

        Truncated sampling renormalises the sampler's probabilities on the kept tokens, so the trainer-to-sampler
        ratio is the kept mass on average instead of 1.

        Raises:
            ValueError: naming the field, the rule and the values.
        """
        checks.check_sampling(self, use_vllm=use_vllm, top_p=top_p, top_k=top_k, min_p=min_p)

    def batch_plan(self, *, num_rows: int, micro_batch_size: int | None = None, num_processes: int = 1) -> BatchPlan:
        """Split a rollout of `num_rows` completions (over all processes) into minibatches and micro-batches.

        `micro_batch_size` is the largest number of rows per forward pass on one process; None forwards a whole
        minibatch at once.

        Raises:
            ValueError: when the rollout does not consist of whole groups, or does not split evenly.
        """
        return plan_batch(
            num_rows=num_rows,
            num_generations=self.num_generations,
            updates_per_rollout=self.updates_per_rollout,
            micro_batch_size=micro_batch_size,
            num_processes=num_processes,
        )

    def to_grpo_kwargs(self) -> dict[str, Any]:
        """Keyword arguments of `trl.GRPOConfig` for the objective; `batch_plan` gives those for the batch."""
        return {name: getattr(self, name) for name in _TRL_FIELDS}

    def knobs(self) -> list[Knob]:
        """Every setting that is switched on, with the metric that shows that it acted."""
        from composer_rl.po.engagement import objective_knobs

        return objective_knobs(self)

    def masks(self) -> dict[str, str]:
        """What may take part of a batch out of the loss: logged share -> the setting behind it and what to do."""
        from composer_rl.po.masks import objective_masks

        return objective_masks(self)
