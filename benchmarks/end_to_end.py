"""Time to the same held-out solve rate: `train.py` against a plain TRL GRPOTrainer script with Hugging Face generate.

    python benchmarks/end_to_end.py --target 0.65 --max-steps 120

Both sides start from the embedded model, train on the same tasks with the same objective (Dr. GRPO), optimizer,
learning rate and completions per step, grade in the same sandbox, and are measured on the same held-out tasks with
the same sampler; evaluation is not counted. The peer answers in one turn, as a GRPOTrainer script with a reward
function does, so it samples fewer tokens a step than train.py, whose episodes go on after an error.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EVAL_EVERY = 10
NUM_HELDOUT = 200


@dataclass(frozen=True)
class Point:
    """One held-out evaluation."""

    step: int
    train_s: float
    solve_rate: float


def run_ours(*, max_steps: int, seed: int, folder: Path) -> list[Point]:
    """Run train.py with its defaults in a process of its own."""
    command = [
        sys.executable,
        str(ROOT / "train.py"),
        f"max_steps={max_steps}",
        f"seed={seed}",
        f"stage.eval_every={EVAL_EVERY}",
        f"stage.num_heldout={NUM_HELDOUT}",
        "stage.save_every=0",
        "tracker=console",
        f"hydra.run.dir={folder}",
    ]
    subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)
    train_s, points = 0.0, []
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        train_s += record.get("time/step_s") or 0.0
        if "heldout/solve_rate" in record:
            points.append(Point(record["step"], train_s, record["heldout/solve_rate"]))
    return points


def run_peer(*, max_steps: int, seed: int, target: float, folder: Path) -> list[Point]:
    """Run the TRL script in a process of its own."""
    out = folder / "points.json"
    command = [sys.executable, __file__, "--as-peer", str(out), "--max-steps", str(max_steps)]
    subprocess.run([*command, "--seed", str(seed), "--target", str(target)], check=True, cwd=ROOT, stdout=sys.stderr)
    return [Point(**point) for point in json.loads(out.read_text())]


def peer(out: Path, *, max_steps: int, seed: int, target: float) -> None:
    """What a user of TRL would write: prompts, a reward function, GRPOTrainer.train()."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from composer_rl.envs.micro import MicroEnvironment
    from composer_rl.models.tiny import TinyModel
    from composer_rl.rollouts.multi_turn import MultiTurnRollout
    from composer_rl.rollouts.settings import RolloutSettings
    from composer_rl.runtime import Runtime
    from composer_rl.sandboxes.process import ProcessSandbox
    from composer_rl.stages.heldout import HeldoutEvaluator
    from composer_rl.stages.quiet import quiet_libraries

    quiet_libraries()
    Runtime().apply(seed)
    model, tokenizer = TinyModel().load("cpu")
    env = MicroEnvironment()
    points: list[dict[str, Any]] = []

    def first_attempt_grade(completion_ids: Any, task_id: list[str], **kwargs: Any) -> list[float]:
        episodes = [env.start(tasks[name]) for name in task_id]
        # Not `completions`: TRL parses a tool call out of the text, which leaves its content empty.
        texts = tokenizer.batch_decode(completion_ids, skip_special_tokens=True)
        return [step.reward for step in env.step(episodes, texts)]

    def sample(policy: Any, wanted: Any, *, num_samples: int, seed: int, max_turns: int) -> Any:
        rollout = MultiTurnRollout.from_settings(env, tokenizer, RolloutSettings(), seed=seed, model=policy)
        return rollout.run(policy, wanted, num_samples=num_samples, max_turns=max_turns).rollouts

    class Evaluate(TrainerCallback):
        """Held-out rate every EVAL_EVERY steps, its own time taken out of the clock."""

        def __init__(self) -> None:
            self.evaluator = HeldoutEvaluator(list(env.tasks("heldout"))[:NUM_HELDOUT], sample=sample, seed=seed)
            self.started = time.perf_counter()
            self.evaluating_s = 0.0

        def measure(self, state: Any, policy: Any) -> float:
            begin = time.perf_counter()
            rate = self.evaluator(policy, state.global_step)["heldout/solve_rate"]
            points.append(
                {"step": state.global_step, "train_s": begin - self.started - self.evaluating_s, "solve_rate": rate}
            )
            self.evaluating_s += time.perf_counter() - begin
            print(f"peer step {state.global_step}: {points[-1]['train_s']:.1f} s, {rate:.3f}", flush=True)
            return rate

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            self.started = time.perf_counter()
            self.measure(state, model)

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            if state.global_step % EVAL_EVERY == 0 and self.measure(state, model) >= target:
                control.should_training_stop = True

    with ProcessSandbox() as sandbox, tempfile.TemporaryDirectory() as scratch:
        env.open(sandbox)
        tasks = {task.task_id: task for task in env.tasks("train")}
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=[first_attempt_grade],
            args=GRPOConfig(
                output_dir=scratch,
                max_steps=max_steps,
                seed=seed,
                loss_type="dr_grpo",
                scale_rewards="none",
                num_generations=8,
                per_device_train_batch_size=96,
                max_completion_length=RolloutSettings().max_new_tokens,
                learning_rate=1e-3,
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
            callbacks=[Evaluate()],
        )
        trainer.train()
    out.write_text(json.dumps(points))


def first_reaching(points: list[Point], target: float) -> Point | None:
    """The first evaluation at or above the target."""
    return next((point for point in points if point.solve_rate >= target), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=float, default=0.65, help="held-out first-attempt solve rate to reach")
    parser.add_argument("--max-steps", type=int, default=120)
    parser.add_argument("--peer-max-steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--as-peer", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_peer is not None:
        peer(arguments.as_peer, max_steps=arguments.max_steps, seed=arguments.seed, target=arguments.target)
        return
    with tempfile.TemporaryDirectory() as scratch:
        ours = run_ours(max_steps=arguments.max_steps, seed=arguments.seed, folder=Path(scratch) / "ours")
        theirs = run_peer(
            max_steps=arguments.peer_max_steps, seed=arguments.seed, target=arguments.target, folder=Path(scratch)
        )
    print(f"\nheld-out first-attempt solve rate of {arguments.target}, seed {arguments.seed}:")
    print("| side | steps | training seconds | solve rate there |\n|---|---|---|---|")
    reached = {}
    for name, points in (("train.py", ours), ("TRL GRPOTrainer, HF generate", theirs)):
        point = reached[name] = first_reaching(points, arguments.target)
        if point is None:
            best = max(points, key=lambda p: p.solve_rate)
            print(f"| {name} | not reached in {points[-1].step} | {points[-1].train_s:.0f} | {best.solve_rate:.3f} |")
        else:
            print(f"| {name} | {point.step} | {point.train_s:.0f} | {point.solve_rate:.3f} |")
    if all(reached.values()):
        mine, peers = (reached[name].train_s for name in reached)  # type: ignore[union-attr]
        print(f"\nratio: {peers / mine:.2f}x")


if __name__ == "__main__":
    main()
