"""The peer of `end_to_end.py`: what a user of TRL would write for the embedded tasks, without the trainer of ours.

Tasks, sandbox, model and the held-out measure are the ones of `train.py`; sampling, the tool loop, the batches and
the loss are GRPOTrainer's. The settings repeat those of `conf/` (optim=adamw, po=dr_grpo, rollout=default).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from composer_rl.envs.micro import MicroEnvironment
from composer_rl.models.tiny import TinyModel
from composer_rl.rollouts.multi_turn import MultiTurnRollout
from composer_rl.rollouts.settings import RolloutSettings
from composer_rl.rollouts.trl_environment import trl_environment_factory
from composer_rl.runtime import Runtime
from composer_rl.sandboxes.process import ProcessSandbox
from composer_rl.stages.heldout import HeldoutEvaluator
from composer_rl.stages.quiet import quiet_libraries
from composer_rl.types import Task

TURN_DISCOUNT = 0.5


class Measure(TrainerCallback):
    """Held-out solve rate every few steps, its own time taken out of the clock; stops training at the target."""

    def __init__(self, evaluate: HeldoutEvaluator, *, every: int, target: float) -> None:
        self._evaluate, self._every, self._target = evaluate, every, target
        self._started, self._evaluating_s = 0.0, 0.0
        self.points: list[dict[str, Any]] = []

    def _measure(self, state: Any, policy: Any) -> float:
        begin = time.perf_counter()
        rate = self._evaluate(policy, state.global_step)["heldout/solve_rate"]
        train_s = begin - self._started - self._evaluating_s
        self.points.append({"step": state.global_step, "train_s": train_s, "solve_rate": rate})
        self._evaluating_s += time.perf_counter() - begin
        print(f"plain TRL, step {state.global_step}: {train_s:.1f} s, solved {rate:.3f}", flush=True)
        return rate

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self._started = time.perf_counter()
        self._measure(state, model)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step % self._every == 0 and self._measure(state, model) >= self._target:
            control.should_training_stop = True


def one_turn(env: MicroEnvironment, tasks: dict[str, Task], tokenizer: Any) -> dict[str, Any]:
    """Trainer arguments for answers of one turn, graded by a reward function."""

    def grade(completion_ids: Any, task_id: list[str], **kwargs: Any) -> list[float]:
        # Not `completions`: TRL parses a tool call out of the text, which leaves its content empty.
        texts = tokenizer.batch_decode(completion_ids, skip_special_tokens=True)
        return [step.reward for step in env.step([env.start(tasks[name]) for name in task_id], texts)]

    return {"reward_funcs": [grade]}


def tool_loop(env: MicroEnvironment, tasks: dict[str, Task]) -> dict[str, Any]:
    """Trainer arguments for TRL's tool loop; the reward is train.py's, half for each further turn."""

    class Episode(trl_environment_factory(env, tasks.values(), env.tool_specs)):  # type: ignore[misc]
        def reset(self, **row: Any) -> None:
            super().reset(**row)
            self._num_turns = 0

        def _act(self, action: str) -> str:
            self._num_turns += 1
            return super()._act(action)

        def get_reward(self) -> float:
            return self._reward * TURN_DISCOUNT ** max(self._num_turns - 1, 0)

    return {"environment_factory": Episode}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the held-out measurements")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", type=float, default=0.75)
    parser.add_argument("--max-steps", type=int, default=100)
    parser.add_argument("--eval-every", type=int, default=5)
    parser.add_argument("--num-heldout", type=int, default=200)
    arguments = parser.parse_args()

    quiet_libraries()
    Runtime().apply(arguments.seed)
    model, tokenizer = TinyModel().load("cpu")
    env, settings = MicroEnvironment(max_turns=arguments.turns), RolloutSettings()
    tasks = {task.task_id: task for task in env.tasks("train")}

    def sample(policy: Any, wanted: Any, *, num_samples: int, seed: int, max_turns: int) -> Any:
        rollout = MultiTurnRollout.from_settings(env, tokenizer, settings, seed=seed, model=policy)
        return rollout.run(policy, wanted, num_samples=num_samples, max_turns=max_turns).rollouts

    heldout = list(env.tasks("heldout"))[: arguments.num_heldout]
    measure = Measure(
        HeldoutEvaluator(heldout, sample=sample, seed=arguments.seed),
        every=arguments.eval_every,
        target=arguments.target,
    )
    with ProcessSandbox() as sandbox, tempfile.TemporaryDirectory() as scratch:
        env.open(sandbox)
        protocol = one_turn(env, tasks, tokenizer) if arguments.turns == 1 else tool_loop(env, tasks)
        trainer = GRPOTrainer(
            model=model,
            args=GRPOConfig(
                output_dir=scratch,
                max_steps=arguments.max_steps,
                seed=arguments.seed,
                loss_type="dr_grpo",
                scale_rewards="none",
                num_generations=8,
                per_device_train_batch_size=8 * settings.prompts_per_rollout,
                max_completion_length=settings.max_new_tokens if arguments.turns == 1 else settings.max_tokens,
                max_tool_calling_iterations=max(arguments.turns - 1, 1),
                learning_rate=5e-4,
                lr_scheduler_type="constant",
                adam_beta2=0.98,
                optim="adamw_torch_fused",
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                save_strategy="no",
                logging_steps=10,
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_list([{"prompt": t.prompt, "task_id": t.task_id} for t in tasks.values()]),
            processing_class=tokenizer,
            callbacks=[measure],
            **({"reward_funcs": []} | protocol),
        )
        trainer.train()
    arguments.out.write_text(json.dumps(measure.points))


if __name__ == "__main__":
    main()
