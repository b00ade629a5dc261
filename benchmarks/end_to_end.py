"""Time to the same held-out solve rate: `train.py` against a plain TRL GRPOTrainer script with Hugging Face generate.

    python benchmarks/end_to_end.py --turns 1 3 --seeds 0 1 2

Both sides start from the embedded model, train on the same tasks with the same objective (Dr. GRPO), optimizer,
learning rate, completions per step and turns per episode, grade in the same sandbox, and are measured on the same
held-out tasks with the same sampler; evaluation and start-up are not counted. With one turn the peer
(`plain_trl.py`) is a reward function; with more it is TRL's tool loop over an `environment_factory`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from composer_rl.runtime import Runtime

ROOT = Path(__file__).resolve().parent.parent
NUM_HELDOUT = 200


@dataclass(frozen=True)
class Point:
    """One held-out evaluation."""

    step: int
    train_s: float
    """Seconds of training before it."""
    solve_rate: float


def run_ours(*, turns: int, seed: int, target: float, max_steps: int, eval_every: int, folder: Path) -> list[Point]:
    """Run train.py with its defaults in a process of its own."""
    command = [
        sys.executable,
        str(ROOT / "train.py"),
        f"max_steps={max_steps}",
        f"seed={seed}",
        f"env.max_turns={turns}",
        f"stage.eval_every={eval_every}",
        f"stage.num_heldout={NUM_HELDOUT}",
        "stage.save_every=0",
        "tracker=console",
        f"hydra.run.dir={folder / 'ours'}",
    ]
    subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)
    records = [json.loads(line) for line in (folder / "ours" / "metrics.jsonl").read_text().splitlines()]
    points: list[Point] = []
    started = evaluating_s = 0.0
    for number, record in enumerate(records):
        if "heldout/solve_rate" not in record:
            continue
        # An evaluation is logged at its end; its seconds stand in the next line that has any.
        if points:
            evaluating_s += next((r["time/eval_s"] for r in records[number + 1 :] if "time/eval_s" in r), 0.0)
        else:
            started = record["time_s"]
        points.append(Point(record["step"], record["time_s"] - started - evaluating_s, record["heldout/solve_rate"]))
    return points


def run_peer(*, turns: int, seed: int, target: float, max_steps: int, eval_every: int, folder: Path) -> list[Point]:
    """Run the TRL script in a process of its own."""
    out = folder / "points.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "plain_trl.py"), f"--out={out}", f"--turns={turns}"]
    command += [f"--seed={seed}", f"--target={target}", f"--max-steps={max_steps}", f"--eval-every={eval_every}"]
    subprocess.run([*command, f"--num-heldout={NUM_HELDOUT}"], check=True, cwd=ROOT, stdout=sys.stderr)
    return [Point(**point) for point in json.loads(out.read_text())]


SIDES = {"train.py": run_ours, "plain TRL": run_peer}


def first_reaching(points: list[Point], target: float) -> Point | None:
    """The first evaluation at or above the target."""
    return next((point for point in points if point.solve_rate >= target), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=float, default=0.75, help="held-out first-attempt solve rate to reach")
    parser.add_argument("--turns", type=int, nargs="+", default=[1, 3], help="turns of an episode")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--max-steps", type=int, default=60)
    parser.add_argument("--eval-every", type=int, default=5)
    arguments = parser.parse_args()
    # The same threads and the same idle waiting for both sides: the variables are inherited.
    Runtime().prepare()
    rows = []
    for turns in arguments.turns:
        for seed in arguments.seeds:
            reached: dict[str, Point | None] = {}
            for name, run in SIDES.items():
                with tempfile.TemporaryDirectory() as scratch:
                    points = run(
                        turns=turns,
                        seed=seed,
                        target=arguments.target,
                        max_steps=arguments.max_steps,
                        eval_every=arguments.eval_every,
                        folder=Path(scratch),
                    )
                reached[name] = first_reaching(points, arguments.target)
            rows.append((turns, seed, *reached.values()))
    print(f"\nseconds of training until the held-out first-attempt solve rate is at least {arguments.target}:")
    print("| turns | seed | train.py | plain TRL | ratio |\n|---|---|---|---|---|")
    for turns, seed, ours, peers in rows:
        shown = [
            f"not in {arguments.max_steps} steps"
            if point is None
            else f"{point.train_s:.1f} s, step {point.step} ({point.train_s / point.step:.2f} s a step)"
            for point in (ours, peers)
        ]
        ratio = f"{peers.train_s / ours.train_s:.1f}x" if ours and peers else "-"
        print(f"| {turns} | {seed} | {' | '.join(shown)} | {ratio} |")
    for turns in arguments.turns:
        pairs = [(ours, peers) for t, _, ours, peers in rows if t == turns and ours and peers]
        if pairs:
            total = sum(peers.train_s for _, peers in pairs) / sum(ours.train_s for ours, _ in pairs)
            print(f"{turns} turn(s): {total:.2f}x over {len(pairs)} seed(s)")


if __name__ == "__main__":
    main()
