"""How one rollout is split into optimizer steps and forward passes, in TRL's terms.

    rollout of N rows = updates_per_rollout minibatches, each one optimizer step
    minibatch         = num_processes x gradient_accumulation_steps micro-batches of per_device_train_batch_size rows
    steps_per_generation = updates_per_rollout x gradient_accumulation_steps

TRL skips the old log-probs, and every ratio is 1, when gradient_accumulation_steps is a multiple of
steps_per_generation x num_iterations: with this plan exactly when updates_per_rollout x num_iterations is 1.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """Batch sizes of a run."""

    per_device_train_batch_size: int
    """Rows of one forward pass on one process."""
    gradient_accumulation_steps: int
    """Forward passes per optimizer step on one process."""
    steps_per_generation: int
    """Forward passes per rollout on one process."""

    def to_grpo_kwargs(self) -> dict[str, int]:
        """The three as keyword arguments of `trl.GRPOConfig`."""
        return {
            "per_device_train_batch_size": self.per_device_train_batch_size,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
            "steps_per_generation": self.steps_per_generation,
        }


def plan_batch(
    *,
    num_rows: int,
    num_generations: int,
    updates_per_rollout: int,
    micro_batch_size: int | None,
    num_processes: int,
) -> BatchPlan:
    """Split `num_rows` rows; the micro-batch is the largest divisor of a process's minibatch within the limit.

    Raises:
        ValueError: when a division leaves a remainder; the message names the nearest sizes that fit.
    """
    if num_processes < 1:
        raise ValueError(f"num_processes must be at least 1, got {num_processes}")
    if micro_batch_size is not None and micro_batch_size < 1:
        raise ValueError(f"micro_batch_size must be at least 1, got {micro_batch_size}")
    if num_rows < 1 or num_rows % num_generations:
        raise ValueError(
            f"the rollout must hold whole groups: {num_rows} completions are not a multiple of "
            f"num_generations={num_generations}; use {_neighbours(num_rows, num_generations)}"
        )
    pieces = updates_per_rollout * num_processes
    if num_rows % pieces:
        raise ValueError(
            f"the rollout must split evenly: {num_rows} completions are not a multiple of updates_per_rollout="
            f"{updates_per_rollout} x num_processes={num_processes}; use {_neighbours(num_rows, pieces)}"
        )
    minibatch = num_rows // pieces
    limit = minibatch if micro_batch_size is None else min(micro_batch_size, minibatch)
    per_device = next(size for size in range(limit, 0, -1) if minibatch % size == 0)
    accumulation = minibatch // per_device
    return BatchPlan(
        per_device_train_batch_size=per_device,
        gradient_accumulation_steps=accumulation,
        steps_per_generation=updates_per_rollout * accumulation,
    )


def _neighbours(value: int, divisor: int) -> str:
    below = value // divisor * divisor
    above = below + divisor
    return f"{below} or {above}" if below > 0 else f"{above}"
