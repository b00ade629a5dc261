"""TRL's GRPOTrainer with loss channels, own prompt choice, and rollouts that cost nothing where they teach nothing.

    total = policy + sum_i weight_i(step) * loss_sum_i / denominator_i

The policy term is TRL's `_compute_loss`, untouched: advantages and the KL term are never perturbed, and without
channels, prompt source and skipping the trainer is TRL's, bit for bit. TRL 1.16 hooks that are overridden are
listed in `trl_hooks.py`, with a check that fails clearly when an upgrade moves one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from trl import GRPOConfig, GRPOTrainer

from composer_rl.trainer import dynamic_sampling as sampling
from composer_rl.trainer.compact_forward import CompactForward, unsupported_reason
from composer_rl.trainer.ratio_metrics import (
    PolicyForward,
    entropy_mask_metrics,
    off_policy_metrics,
    ratio_metrics,
    sampling_mask_metrics,
)
from composer_rl.trainer.rollout_metrics import rollout_metrics
from composer_rl.trainer.timings import Timings
from composer_rl.trainer.trl_hooks import check_trl_hooks
from composer_rl.trainer.zero_variance import (
    ACTIVE_KEY,
    DIVISOR_OF_LOSS,
    SCALE_KEY,
    active_rows,
    loss_mask,
    rows_with_variance,
    skip_rule,
    window_scales,
)
from composer_rl.types import Rollout

if TYPE_CHECKING:
    from composer_rl.losses.base import LossChannel
    from composer_rl.trainer.prompt_source import PromptSource

_LOG = logging.getLogger(__name__)

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class BatchRules:
    """How a generation batch is filled and which of its rows are computed."""

    skip_zero_variance: bool = True
    """Leave rows without reward variance out of forward and backward where the objective allows it."""
    dynamic_sampling: Literal["off", "drop", "resample"] = "off"
    """DAPO: take such rows out of the divisor too, or sample other prompts in their place."""
    dynamic_sampling_max_rounds: int = 4
    """Rollout rounds per step with `resample`, the first one included."""
    compact_forward: bool = False
    """Compute each prompt once and little padding, where the model allows it (`compact_forward`)."""


class ComposerReplicationTrainer(GRPOTrainer):
    """GRPOTrainer plus channels, prompt source and batch rules.

    Args:
        *args: Passed to `trl.GRPOTrainer`.
        channels: Loss channels by name, added to the policy term.
        prompt_source: Draws the tasks of each rollout; None leaves the choice to TRL's data loader.
        sample_rollouts: (trainer, rows) -> what TRL wants of a rollout_func, with the list `rollout` of our records;
            rows are dataset rows already repeated `num_generations` times. None leaves generation to TRL.
        grades_rollouts: Whether the reward of a rollout is a grade of its environment, so that solve rates mean
            something.
        step_metrics: Further figures of the steps since it was last called, merged into each log.
        batch_rules: Skipping and dynamic sampling; the default of this constructor changes nothing in TRL.
        **kwargs: Passed to `trl.GRPOTrainer`.

    Raises:
        ValueError: for dynamic sampling whose groups do not fit a rank, or with loss terms that need every row.
    """

    args: GRPOConfig
    model: Any
    num_generations: int

    def __init__(
        self,
        *args: Any,
        channels: dict[str, LossChannel] | None = None,
        prompt_source: PromptSource | None = None,
        sample_rollouts: Callable[[Any, Sequence[dict[str, Any]]], dict[str, Any]] | None = None,
        grades_rollouts: bool = True,
        step_metrics: Callable[[], dict[str, float]] | None = None,
        batch_rules: BatchRules | None = None,
        **kwargs: Any,
    ) -> None:
        check_trl_hooks()
        self.channels = channels or {}
        self.prompt_source = prompt_source
        self.batch_rules = batch_rules or BatchRules(skip_zero_variance=False)
        self.timings = Timings()
        self.last_rollouts: list[Rollout] = []
        self._sample_rollouts = sample_rollouts
        self._grades_rollouts = grades_rollouts
        self._step_metrics = step_metrics
        self._rows: Sequence[dict[str, Any]] = ()
        self._row_rewards: torch.Tensor | None = None
        if sample_rollouts is not None:
            kwargs["rollout_func"] = self._rollout_func
        super().__init__(*args, **kwargs)
        self._selects_rows = self._resolve_row_selection()
        self._compact = self._resolve_compact_forward()

    @property
    def _micro_batches_per_rollout(self) -> int:
        assert self.args.steps_per_generation is not None, "GRPOConfig fills it in"
        return self.args.steps_per_generation

    # -- which rows are computed ---------------------------------------------------------------------------------

    def _resolve_row_selection(self) -> bool:
        rules = self.batch_rules
        rule = skip_rule(
            beta=self.beta,
            entropy_bonus=self._entropy_bonus_enabled,
            top_entropy_quantile=self.top_entropy_quantile,
            aux_loss=self.aux_loss_enabled,
            multi_objective_aggregation=self.multi_objective_aggregation,
            num_channels=len(self.channels),
        )
        if rules.dynamic_sampling != "off":
            if not rule.allowed:
                raise ValueError(f"po.dynamic_sampling={rules.dynamic_sampling} cannot be combined with: {rule.reason}")
            rows_per_rank = self.args.per_device_train_batch_size * self._micro_batches_per_rollout
            if rows_per_rank % self.num_generations:
                raise ValueError(
                    f"po.dynamic_sampling needs whole groups on every rank: {rows_per_rank} rows a rank are not "
                    f"divisible by num_generations={self.num_generations}"
                )
            return True
        return rules.skip_zero_variance and rule.allowed

    def _resolve_compact_forward(self) -> CompactForward | None:
        if not self.batch_rules.compact_forward:
            return None
        reason = unsupported_reason(self.model, gradient_checkpointing=self.args.gradient_checkpointing)
        if reason is None and (self.is_deepspeed_enabled or self.is_fsdp_enabled):
            reason = "the model is sharded, and its forward must be called equally often on every rank"
        if reason is not None:
            _LOG.info("prompts are forwarded with every completion, and padding is too: %s", reason)
            return None
        return CompactForward(self.model)

    # -- data ------------------------------------------------------------------------------------------------------

    def _prepare_inputs(self, generation_batch: Any) -> Batch:
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        generate_every = self._micro_batches_per_rollout * self.num_iterations
        is_fresh = self._step % generate_every == 0 or self._buffered_inputs is None
        if is_fresh and self.prompt_source is not None:
            generation_batch = self._draw_rows(len(generation_batch))
        with self.timings.measure("prepare"):
            inputs = super()._prepare_inputs(generation_batch)
            if is_fresh:
                self._annotate_windows()
        return inputs

    def _draw_rows(self, num_rows: int) -> list[dict[str, Any]]:
        """This rank's slice of freshly drawn tasks, each repeated `num_generations` times."""
        assert self.prompt_source is not None
        total = num_rows * self.accelerator.num_processes
        tasks = self.prompt_source.draw(total // self.num_generations)
        rows = [
            {**task.payload, "prompt": task.prompt, "task_id": task.task_id}
            for task in tasks
            for _ in range(self.num_generations)
        ]
        start = self.accelerator.process_index * num_rows
        return rows[start : start + num_rows]

    def _rollout_func(self, prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        assert self._sample_rollouts is not None
        return self._sample_rollouts(self, self._rows)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        with self.timings.measure("reward"):
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        weighted = (rewards * self.reward_weights.to(rewards.device)).nansum(dim=1)
        self._row_rewards = weighted.masked_fill(torch.isnan(rewards).all(dim=1), torch.nan)
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> Batch:
        if not self.model.training:
            self._rows = inputs
            return super()._generate_and_score_completions(inputs)
        self.last_rollouts = []
        batch = self._sample_scored(inputs)
        if self.batch_rules.dynamic_sampling == "resample":
            batch = self._resample(batch)
        elif self.batch_rules.dynamic_sampling == "drop":
            batch["num_items_in_batch"] = self._gathered_loss_tokens(batch)
        if self._selects_rows:
            active = self.accelerator.gather(batch[ACTIVE_KEY]).float()
            self._metrics["train"]["policy/rows_skipped"].append(1.0 - active.mean().item())
        return batch

    def _sample_scored(self, rows: Sequence[dict[str, Any]]) -> Batch:
        self._rows = rows
        batch = super()._generate_and_score_completions(list(rows))
        rollouts = [row["rollout"] for row in rows if "rollout" in row]
        self.last_rollouts.extend(rollouts)
        if self.prompt_source is not None and self._grades_rollouts and rollouts:
            self.prompt_source.record(self._gather_outcomes(rollouts))
        if self._selects_rows:
            assert self._row_rewards is not None
            active = rows_with_variance(self._row_rewards, self.num_generations)
            start = self.accelerator.process_index * len(rows)
            batch[ACTIVE_KEY] = active[start : start + len(rows)].to(batch["completion_ids"].device)
        return batch

    @staticmethod
    def _gather_outcomes(rollouts: Sequence[Rollout]) -> list[tuple[str, bool]]:
        from accelerate.utils import gather_object

        return gather_object([(rollout.task_id, rollout.solved_first) for rollout in rollouts])

    def _resample(self, batch: Batch) -> Batch:
        """Replace groups without variance by freshly sampled ones, within the bound."""
        rules, num_generations = self.batch_rules, self.num_generations
        num_rows = len(batch[ACTIVE_KEY])
        wanted = num_rows // num_generations
        kept: list[Batch] = []
        spare: list[Batch] = []
        rounds = 0
        while True:
            rounds += 1
            num_kept = sum(len(part[ACTIVE_KEY]) for part in kept) // num_generations
            good, rest = sampling.group_indices(batch[ACTIVE_KEY], num_generations, wanted=wanted - num_kept)
            kept.append(sampling.select_rows(batch, good))
            spare.append(sampling.select_rows(batch, rest))
            num_kept += len(good) // num_generations
            missing = self.accelerator.gather(torch.tensor([wanted - num_kept], device=good.device)).max().item()
            if missing == 0 or rounds >= rules.dynamic_sampling_max_rounds or self.prompt_source is None:
                break
            batch = self._sample_scored(self._draw_rows(num_rows))
        merged = sampling.concatenate(kept + spare, pad_token_id=self._tokenizer.pad_token_id)
        merged = sampling.select_rows(merged, torch.arange(num_rows, device=merged[ACTIVE_KEY].device))
        merged["num_items_in_batch"] = self._gathered_loss_tokens(merged)
        self._metrics["train"]["dynamic_sampling/rounds"].append(float(rounds))
        return merged

    def _gathered_loss_tokens(self, batch: Batch) -> torch.Tensor:
        return self.accelerator.gather(sampling.num_loss_tokens(batch, active_only=True)).sum()

    def _annotate_windows(self) -> None:
        """Write what each micro-batch needs to know about its accumulation window into the buffered batches."""
        window_length = self.args.gradient_accumulation_steps
        buffered = self._buffered_inputs
        assert buffered is not None
        for start in range(0, len(buffered), window_length):
            window = buffered[start : start + window_length]
            if self._selects_rows:
                mode: Literal["skip", "drop"] = "skip" if self.batch_rules.dynamic_sampling == "off" else "drop"
                for batch, scale in zip(
                    window, window_scales(window, loss_type=self.loss_type, mode=mode), strict=True
                ):
                    batch[SCALE_KEY] = scale
            for name, channel in self.channels.items():
                local = torch.stack([channel.num_active(batch) for batch in window]).sum()
                total = self.accelerator.gather(local.float()).sum()
                for batch in window:
                    batch[_denominator_key(name)] = total

    # -- log -------------------------------------------------------------------------------------------------------

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's log with seconds per part of the step and the figures of the sampled episodes."""
        if self.model.training:
            logs.update(self._part_seconds())
            if self._grades_rollouts and self.last_rollouts:
                logs.update(rollout_metrics(self.last_rollouts))
            if self.prompt_source is not None:
                logs.update(self.prompt_source.metrics())
            if self._step_metrics is not None:
                logs.update(self._step_metrics())
        super().log(logs, start_time)

    def _part_seconds(self) -> dict[str, float]:
        """Seconds since the last log; `policy` is forward and backward, without sampling and grading."""
        seconds = self.timings.take()
        step, prepare = seconds.pop("time/training_step_s", 0.0), seconds.pop("time/prepare_s", 0.0)
        if step:
            seconds["time/policy_s"] = step - prepare
            seconds["time/step_s"] = step + seconds.get("time/optimizer_s", 0.0)
        return seconds

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write none: what the run was is in its result.json."""

    # -- loss ------------------------------------------------------------------------------------------------------

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        with self.timings.measure("training_step"):
            return super().training_step(model, inputs, num_items_in_batch)

    def _compute_loss(self, model: torch.nn.Module, inputs: Batch) -> torch.Tensor:
        if self._selects_rows and self.model.training:
            computed = active_rows(inputs)
            policy = super()._compute_loss(model, computed) * inputs[SCALE_KEY]
        else:
            computed = inputs
            policy = super()._compute_loss(model, inputs)
        if self.model.training:
            self._log_knob_metrics(computed)
        if not self.channels:
            return policy
        return policy + self._channel_losses(model, inputs, like=policy)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **images: Any,
    ) -> Any:
        plain = super()._get_per_token_logps_and_entropies
        scores = None
        if self._compact is not None and not compute_aux_loss and all(value is None for value in images.values()):
            scores = self._compact.checked(
                model, input_ids, attention_mask, logits_to_keep, max_rows=batch_size, plain=plain
            )
        if scores is None:
            logprobs, entropies, aux_loss = plain(
                model,
                input_ids,
                attention_mask,
                logits_to_keep,
                batch_size=batch_size,
                compute_entropy=compute_entropy,
                compute_aux_loss=compute_aux_loss,
                **images,
            )
        else:
            logprobs, entropies, aux_loss = scores.logprobs, scores.entropies if compute_entropy else None, None
        if logprobs.requires_grad:
            self._policy_forward = PolicyForward(
                logprobs=logprobs.detach(), entropies=None if entropies is None else entropies.detach()
            )
        return logprobs, entropies, aux_loss

    def _log_knob_metrics(self, inputs: Batch) -> None:
        """Log what shows that ratio, entropy and off-policy knobs acted; nothing where none of them is in force."""
        forward, mask = self._policy_forward, loss_mask(inputs)
        metrics: dict[str, float] = {}
        if "old_per_token_logps" in inputs:
            metrics |= ratio_metrics(forward, inputs["old_per_token_logps"], mask)
        if "importance_sampling_ratio" in inputs:
            metrics |= sampling_mask_metrics(inputs["importance_sampling_ratio"], mask)
        if self.top_entropy_quantile < 1.0:
            metrics |= entropy_mask_metrics(
                forward, mask, quantile=self.top_entropy_quantile, high_entropy_mask=self.get_high_entropy_mask
            )
        if self.off_policy_mask_threshold is not None:
            metrics |= off_policy_metrics(
                forward,
                inputs,
                mask,
                threshold=self.off_policy_mask_threshold,
                off_policy_mask=self.get_off_policy_mask,
            )
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)

    def _channel_losses(self, model: torch.nn.Module, inputs: Batch, *, like: torch.Tensor) -> torch.Tensor:
        """Weighted sum of the channels; scaled here and nowhere else.

        DDP averages gradients over ranks, so a denominator that is summed over ranks needs the factor num_processes.
        In evaluation there is no window: the micro-batch is its own denominator.
        """
        mode = "train" if self.model.training else "eval"
        total = torch.zeros((), device=like.device, dtype=like.dtype)
        for name, channel in self.channels.items():
            weight = channel.weight_at(self.state.global_step)
            self._metrics[mode][f"channels/{name}/weight"].append(weight)
            if weight == 0.0:
                continue
            key = _denominator_key(name)
            denominator = inputs[key] if key in inputs else channel.num_active(inputs).float()
            output = channel.compute(model, inputs)
            loss = output.loss_sum / denominator.clamp(min=1.0) * self.accelerator.num_processes
            total = total + weight * loss
            self._metrics[mode][f"channels/{name}/loss"].append(float(loss.detach()))
            self._metrics[mode][f"channels/{name}/num_active"].append(float(denominator))
            for metric, value in output.metrics.items():
                self._metrics[mode][f"channels/{name}/{metric}"].append(value)
        return total


def _denominator_key(channel: str) -> str:
    return f"channel_denominator/{channel}"


__all__ = ["DIVISOR_OF_LOSS", "BatchRules", "ComposerReplicationTrainer"]
