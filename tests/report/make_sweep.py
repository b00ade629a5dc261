"""Writes a sweep folder like those of a real sweep, for tests and for looking at the page."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.report.make_run import HOSTILE, metrics_line, result, rollout, skill_at

ON_POLICY = "fully on-policy: updates_per_rollout=1 and num_iterations=1, every ratio is 1"
COMMAND = ["python", "train.py", "-m", "multirun_sweeps=po_presets", "tracker.wandb.api_key=abc123def456"]


def row(knob: str, metric: str, value: float | None, engaged: bool | None, note: str = "") -> dict[str, Any]:
    """A row of an engagement table as result.json has it."""
    word = {True: "acted in 58 of 60 logged steps", False: f"never engaged: {note}", None: f"not measured: {note}"}
    return {"knob": knob, "metric": metric, "value": value, "engaged": engaged, "note": word[engaged]}


ROUNDS = row("env.max_turns", "rollout/num_turns", 2.1, True)
LOW = row("po.epsilon", "clip_ratio/low_mean", 0.0, False, ON_POLICY)
HIGH = row("po.epsilon_high", "clip_ratio/high_mean", 0.0, False, ON_POLICY)
HIGH_ACTED = row("po.epsilon_high", "clip_ratio/high_mean", 0.011, True)


@dataclass(kw_only=True)
class ArmPlan:
    """One arm of a made-up sweep."""

    choice: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Dotted settings that differ from those of `config`."""
    engagement: Sequence[dict[str, Any]] = (ROUNDS, LOW, HIGH)
    skill: float = 0.0
    """Added to the final solve rate."""
    status: Mapping[int, str] = field(default_factory=dict)
    """By seed, where it is not "succeeded"; "absent" leaves no folder, "empty" an empty one, "torn" half a result."""
    same_as_seed: str = ""
    """Arms with the same text draw the same numbers."""


PRESETS = (
    ArmPlan(choice={"po": "dr_grpo"}),
    ArmPlan(
        choice={"po": "dapo"},
        settings={"po.loss_type": "dapo", "po.scale_rewards": "group", "po.epsilon_high": 0.28},
        engagement=(ROUNDS, LOW, HIGH_ACTED, row("po.scale_rewards", "frac_reward_zero_std", 0.3, True)),
        skill=0.09,
        status={3: "failed"},
    ),
    ArmPlan(choice={"po": "dr_grpo_clip_higher"}, settings={"po.epsilon_high": 0.28}, skill=0.01),
    ArmPlan(
        choice={"po": "gspo_with_a_name_that_is_rather_long_for_a_figure"},
        settings={"po.loss_type": "grpo", "po.updates_per_rollout": 4, "po.epsilon_high": 4e-4},
        engagement=(ROUNDS, HIGH_ACTED),
        skill=-0.015,
        status={2: "running", 4: "absent"},
    ),
)
"""Four arms: a baseline, one that is better, one that is void, and one that is incomplete."""


def config(seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved configuration with some settings changed."""
    made: dict[str, Any] = {
        "seed": seed,
        "run_name": None,
        "po": {
            "_target_": "composer_rl.po.base.PolicyObjective",
            "loss_type": "dr_grpo",
            "scale_rewards": "none",
            "epsilon": 0.2,
            "beta": 0.0,
        },
        "env": {"_target_": "composer_rl.envs.micro.MicroEnvironment", "max_turns": 3},
        "optim": {"_target_": "composer_rl.optim.adamw.AdamWSettings", "learning_rate": 0.0005},
        "tracker": {"trackers": {"wandb": {"name": f"seed-{seed}"}}},
    }
    for path, value in settings.items():
        *parts, last = path.split(".")
        node = made
        for part in parts:
            node = node.setdefault(part, {})
        node[last] = value
    return made


def write_job(
    folder: Path, plan: ArmPlan, seed: int, *, num_steps: int, status: str, overrides: Sequence[str], hostile: bool
) -> None:
    """The files of one job."""
    folder.mkdir(parents=True, exist_ok=True)
    if status == "empty":
        return
    rng = random.Random(f"{plan.same_as_seed or plan.choice}-{seed}")
    offset = plan.skill + rng.gauss(0, 0.02)
    luck = random.Random(seed).gauss(0, 0.03)
    ends = num_steps if status in ("succeeded", "torn") else num_steps // 2
    lines, rollouts, time_s = [], [], 0.0
    for step in range(ends + 1):
        skill = min(0.97, max(0.02, skill_at(step, num_steps) + (offset + luck) * step / num_steps))
        time_s += 3.6 + rng.random()
        if step % max(1, num_steps // 6) == 0 or step == ends:
            solved = round(200 * min(1.0, max(0.0, skill + rng.gauss(0, 0.01)))) / 200
            lines.append({"step": step, "time_s": time_s, "heldout/solve_rate": solved, "heldout/num_tasks": 200.0})
            rollouts += [rollout(random.Random(index), step, "heldout", skill) for index in range(4)]
        if step:
            lines.append(metrics_line(rng, step, skill, time_s))
            rollouts += [rollout(rng, step, "train", skill)]
    content = result("succeeded" if status == "torn" else status, num_steps)
    content["metrics"] = {}
    if status == "succeeded":
        content["metrics"] = {
            "heldout/solve_rate_before": 0.33,
            "heldout/solve_rate_after": solved,
            "heldout/num_tasks": 200.0,
            "train/tokens": 96.0 * 60 * num_steps,
            "replay/spent_usd": 0.0125,
        }
    if status == "failed":
        content["error"] = {
            "type": "SandboxError",
            "message": "the template process died" + (HOSTILE if hostile else ""),
            "traceback": "Traceback ...",
        }
    content |= {
        "engagement": [dict(found) for found in plan.engagement] if status in ("succeeded", "torn") else [],
        "seeds": {"seed": seed},
        "config": config(seed, plan.settings),
        "overrides": list(overrides),
        "command": COMMAND,
        "choices": {"po": plan.choice.get("po"), "stage": "rl"},
        "duration_s": time_s,
    }
    if hostile:
        for record in rollouts:
            record["task_id"] += HOSTILE
            record["turns"][0]["text"] = HOSTILE
        content["engagement"].append(row(HOSTILE, HOSTILE, 0.0, False, HOSTILE))
        content["config"][HOSTILE] = plan.skill
    text = json.dumps(content)
    (folder / "result.json").write_text(text[: len(text) // 2] if status == "torn" else text)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "rollouts.jsonl").write_text("".join(json.dumps(record) + "\n" for record in rollouts))
    if status == "running":
        (folder / ".lock").write_text("1")  # Held by nobody: its process was killed.


def write_sweep(
    folder: Path,
    arms: Sequence[ArmPlan] = PRESETS,
    *,
    num_seeds: int = 5,
    num_steps: int = 24,
    plan: bool = True,
    baseline: Mapping[str, Any] | None = None,
    hostile: bool = False,
    **extra: Any,
) -> Path:
    """Write the job folders of a sweep, and sweep.json where `plan` says so; returns the folder.

    `extra` goes into sweep.json.
    """
    folder.mkdir(parents=True, exist_ok=True)
    jobs = []
    for at, arm in enumerate(arms):
        for seed in range(num_seeds):
            num, status = at * num_seeds + seed, arm.status.get(seed, "succeeded")
            name = f"{num}-{num:08x}"
            overrides = [*(f"{key}={value}" for key, value in arm.choice.items()), f"seed={seed}", "max_steps=24"]
            if status != "absent":
                write_job(
                    folder / name, arm, seed, num_steps=num_steps, status=status, overrides=overrides, hostile=hostile
                )
            planned = {"absent": "pending", "torn": "succeeded", "empty": "running"}.get(status, status)
            jobs.append(
                {"num": num, "dir": name, "overrides": overrides, "seed": seed, "arm": dict(arm.choice),
                 "status": planned, "attempts": 1, "error": None}
            )  # fmt: skip
    if plan:
        content = {
            "name": "po_presets",
            "created": "2026-03-02T14:05:11+00:00",
            "updated": "2026-03-02T15:05:11+00:00",
            "command": COMMAND,
            "question": "Does the objective matter on the testbed?" + (HOSTILE if hostile else ""),
            "objective": "heldout/solve_rate_after",
            "direction": "maximize",
            "baseline": dict(baseline if baseline is not None else arms[0].choice),
            "jobs": jobs,
            **extra,
        }
        (folder / "sweep.json").write_text(json.dumps(content))
    return folder
