"""One training run: assemble the trainer out of the run's components, train, and collect what it leaves."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import Dataset
from transformers import TrainerState

from composer_rl.engagement import EngagementTable, engagement_metrics
from composer_rl.errors import RunDirectoryError
from composer_rl.rewards.base import TRLReward, as_trl
from composer_rl.stages.base import RunContext, StageResult
from composer_rl.stages.generation import BACKENDS
from composer_rl.stages.heldout import HeldoutEvaluator
from composer_rl.stages.policy import Policy, open_policy
from composer_rl.stages.rl_config import grpo_config
from composer_rl.stages.run_knobs import run_knobs
from composer_rl.stages.run_warnings import training_warnings
from composer_rl.trainer.callbacks.heldout import HeldoutCallback
from composer_rl.trainer.callbacks.metrics import MetricsCallback
from composer_rl.trainer.callbacks.resumable import ResumableCallback
from composer_rl.trainer.callbacks.rollout_log import RolloutLogCallback
from composer_rl.trainer.checkpoint import newest_complete
from composer_rl.trainer.composer_trainer import BatchRules, ComposerReplicationTrainer
from composer_rl.trainer.masked_share import MaskedShareWarning
from composer_rl.trainer.prompt_source import PromptSource

if TYPE_CHECKING:
    from composer_rl.po.base import PolicyObjective
    from composer_rl.stages.rl import RLStage

_LOG = logging.getLogger(__name__)

FINAL_CHECKPOINT = "checkpoint"
"""Folder of the trained model and its tokenizer, in the run directory."""


class RLSession:
    """Holds what one call of RLStage.run needs."""

    def __init__(self, stage: RLStage, context: RunContext) -> None:
        self._stage = stage
        self._context = context
        self._components = context.components
        self._objective: PolicyObjective = context.components["po"]

    def run(self) -> StageResult:
        """Train from the start or from the newest complete checkpoint."""
        checkpoint = self._checkpoint_to_resume()
        with open_policy(self._context) as policy:
            trainer = self._build_trainer(policy)
            table = EngagementTable(run_knobs(self._components))
            heldout = self._heldout_callback(trainer, policy)
            state = ResumableCallback(
                {
                    "prompts": self._prompt_source,
                    "sampler": policy.sampler_state,
                    "engagement": table,
                    "heldout": heldout,
                }
            )
            rollouts = RolloutLogCallback(
                policy.rollout_log, every=self._stage.rollouts_every, rollouts=lambda: trainer.last_rollouts
            )
            observers = [table, MaskedShareWarning(self._objective.masks())]
            metrics = MetricsCallback(self._context.trackers, trainer.timings, observers)
            for callback in (metrics, rollouts, heldout, state):
                trainer.add_callback(callback)
            if checkpoint is not None:
                state.restore(checkpoint)
                _LOG.info("resuming from %s with a fresh rollout", checkpoint.name)
            self._context.trackers.phase("")
            train_s = self._train(trainer, checkpoint)
            if trainer.state.global_step != heldout.latest_step:
                heldout.measure(policy.model, trainer.state)
            self._save(trainer, policy)
        rows = table.rows()
        figures = {
            **heldout.result(),
            **engagement_metrics(rows),
            "time/train_s": train_s,
            "train/steps": float(trainer.state.global_step),
            "train/tokens": float(trainer.state.num_input_tokens_seen),
        }
        return StageResult(
            metrics=figures,
            engagement=[vars(row) for row in rows],
            warnings=training_warnings(trainer.state.log_history),
            void=table.void(),
        )

    def _train(self, trainer: ComposerReplicationTrainer, checkpoint: Path | None) -> float:
        """Take the steps that are left and return the seconds they took.

        The Hugging Face loop takes a step before it looks at max_steps, so a run that is complete is not entered.
        """
        if checkpoint is not None and int(checkpoint.name.rpartition("-")[2]) >= trainer.args.max_steps:
            trainer._load_from_checkpoint(str(checkpoint))
            trainer.state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
            _LOG.info("%s is already at max_steps=%d: nothing to train", checkpoint.name, trainer.args.max_steps)
            return 0.0
        output = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        return float(output.metrics["train_runtime"])

    def _checkpoint_to_resume(self) -> Path | None:
        if not self._context.resume:
            return None
        checkpoint = newest_complete(self._context.run_dir)
        if checkpoint is None:
            raise RunDirectoryError(
                f"resume=true, but {self._context.run_dir} has no complete checkpoint (a run writes one every "
                "stage.save_every steps); start again in a new folder"
            )
        return checkpoint

    def _build_trainer(self, policy: Policy) -> ComposerReplicationTrainer:
        components, objective = self._components, self._objective
        runtime, rollout, optimizer = components["runtime"], components["rollout"], components["optim"]
        generation = BACKENDS[rollout.backend](policy, components["reward"])
        functions, weights = self._with_penalty(generation.reward_functions, generation.reward_weights)
        device = runtime.torch_device()
        config = grpo_config(
            output_dir=self._context.run_dir,
            objective=objective,
            optimizer=optimizer,
            rollout=rollout,
            plan=objective.batch_plan(
                num_rows=rollout.prompts_per_rollout * objective.num_generations,
                micro_batch_size=runtime.micro_batch_size,
                num_processes=_num_processes(),
            ),
            device=device,
            max_steps=self._context.max_steps or self._stage.max_steps,
            seed=self._context.seed,
            reward_weights=weights,
            gradient_checkpointing=runtime.gradient_checkpointing,
            save_strategy="steps" if self._stage.save_every else "no",
            save_steps=self._stage.save_every or 1,
            save_total_limit=self._stage.keep_checkpoints,
            **generation.config_kwargs,
        )
        tasks = list(policy.env.tasks("train"))
        self._prompt_source = PromptSource(tasks, components["curriculum"], seed=self._context.seed)
        trainer = ComposerReplicationTrainer(
            model=policy.model,
            args=config,
            reward_funcs=functions,
            # Only paces the loop: the prompt source chooses the tasks of each rollout.
            train_dataset=Dataset.from_list(
                [{"prompt": task.prompt} for task in tasks] * -(-rollout.prompts_per_rollout // len(tasks))
            ),
            processing_class=policy.tokenizer,
            optimizers=(optimizer.build(policy.model), None),
            channels=components["loss"].channels,
            prompt_source=self._prompt_source,
            grades_rollouts=policy.env.grades,
            **generation.trainer_kwargs,
            batch_rules=BatchRules(
                skip_zero_variance=objective.skip_zero_variance,
                dynamic_sampling=objective.dynamic_sampling,
                dynamic_sampling_max_rounds=objective.dynamic_sampling_max_rounds,
                compact_forward=runtime.compact_forward,
            ),
        )
        _silence_default_callbacks(trainer)
        return trainer

    def _with_penalty(self, functions: list[TRLReward], weights: list[float]) -> tuple[list[TRLReward], list[float]]:
        """Rewards with the objective's soft over-long punishment, where it has one."""
        penalty = self._objective.overlong_penalty
        if penalty is None:
            return functions, weights
        from composer_rl.rewards.overlong import SoftOverlongPenalty

        budget = self._components["rollout"].max_tokens
        soft = SoftOverlongPenalty(max_tokens=budget, cache_tokens=penalty.resolve_cache_tokens(budget))
        return [*functions, as_trl(soft)], [*weights, penalty.weight]

    def _heldout_callback(self, trainer: ComposerReplicationTrainer, policy: Policy) -> HeldoutCallback:
        wanted = self._stage.num_heldout
        tasks = list(policy.env.tasks("heldout"))[:wanted]
        if wanted is not None and len(tasks) < wanted:
            _LOG.warning("stage.num_heldout=%d, but the environment has %d held-out tasks", wanted, len(tasks))
        evaluate = HeldoutEvaluator(
            tasks,
            sample=policy.sample,
            seed=self._context.seed,
            log=policy.rollout_log,
            reward=None if policy.env.grades else self._components["reward"],
        )
        return HeldoutCallback(
            evaluate, every=self._stage.eval_every, tracker=self._context.trackers, timings=trainer.timings
        )

    def _save(self, trainer: ComposerReplicationTrainer, policy: Policy) -> None:
        self._context.trackers.phase("saving the model")
        folder = self._context.run_dir / FINAL_CHECKPOINT
        trainer.save_model(str(folder))
        (folder / "training_args.bin").unlink(missing_ok=True)  # A pickle, which nobody should have to load.
        policy.tokenizer.save_pretrained(folder)


def _num_processes() -> int:
    """Ranks of a distributed launch (accelerate and torchrun set WORLD_SIZE); 1 without one."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _silence_default_callbacks(trainer: Any) -> None:
    """The trackers show progress; the trainer's own printers would draw over them."""
    from transformers import PrinterCallback, ProgressCallback

    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
