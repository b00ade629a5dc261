"""Writes a run folder like those of a real run, for tests and for looking at the page."""

from __future__ import annotations

import hashlib
import json
import math
import random
from pathlib import Path
from typing import Any

TOOLS = ("write", "swap_in", "patch", "put", "store", "fill", "set_body", "apply")
KEYS = ("text", "code", "source", "body")
REPOSITORIES = ("fig", "elm", "oak", "ash", "yew", "fir", "bay", "gum")
BODIES = ("return sum(xs) + {n}", "return [x * {n} for x in xs]", "return max(xs) - {n}", "return len(xs) % {n}")
KINDS = ("tool_not_found", "json_decode", "type_error", "runtime_error", "test_failure")
SYSTEM = "You repair functions. Tools: " + ", ".join(TOOLS) + ". Answer with one JSON tool call."
HOSTILE = '</script><script>window.hacked = 1</script><img src=x onerror="window.hacked=1">'


def call(tool: str, key: str, body: str) -> str:
    return json.dumps({"name": tool, "arguments": {"function": "func", key: body}})


def failed_turn(rng: random.Random, kind: str, tool: str, key: str, body: str) -> dict[str, Any]:
    wrong = rng.choice([other for other in TOOLS if other != tool])
    text, message = {
        "tool_not_found": (call(wrong, key, body), f"ToolError: no tool {wrong}"),
        "json_decode": (call(tool, key, body)[:-3], "JSONDecodeError: Expecting ',' delimiter: line 1 column 83"),
        "type_error": (call(tool, "data", body), f"TypeError: {tool} got data"),
        "runtime_error": (call(tool, key, "return sum(ys)"), "NameError: name 'ys' is not defined"),
        "test_failure": (call(tool, key, body + " + 1"), "AssertionError: func([1, 2]) == 8 got 9"),
        "repeated_failure": (call(wrong, key, body), f"RepeatedFailure: ToolError: no tool {wrong}"),
    }[kind]
    return {
        "text": text,
        "reward": 0.0 if kind != "test_failure" else round(rng.choice([0.0, 1 / 3, 2 / 3]), 3),
        "error_kind": kind,
        "error_message": message,
        "observation": message,
        "hint": None,
    }


def rollout(rng: random.Random, step: int, split: str, skill: float) -> dict[str, Any]:
    """One episode of a policy that solves a turn with probability `skill`."""
    number, tool, key = rng.randrange(2, 10), rng.choice(TOOLS), rng.choice(KEYS)
    body = rng.choice(BODIES).format(n=number)
    repository = rng.choice(REPOSITORIES)
    user = (
        f"repo {repository}\n\n"
        f'def func(xs):\n    """Combine the numbers with {number}."""\n    ...\n\n'
        f"FAILED assert func([1, 2]) == {rng.randrange(20)}"
    )
    turns: list[dict[str, Any]] = []
    while len(turns) < 3:
        if rng.random() < skill + 0.15 * len(turns):
            turns.append(
                {
                    "text": call(tool, key, body),
                    "reward": 1.0,
                    "error_kind": None,
                    "error_message": None,
                    "observation": None,
                    "hint": None,
                }
            )
            break
        kind = (
            rng.choices(KINDS, weights=[30, 8, 25, 12, 25])[0]
            if not turns
            else rng.choice([*KINDS, "repeated_failure"])
        )
        turns.append(failed_turn(rng, kind, tool, key, body))
    if turns[-1]["error_kind"]:
        turns[-1]["observation"] = None
    return {
        "step": step,
        "split": split,
        "task_id": hashlib.sha256(user.encode()).hexdigest()[:16],
        "reward": turns[-1]["reward"],
        "stop_reason": "solved" if turns[-1]["reward"] == 1.0 else "max_turns",
        "prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}],
        "turns": turns,
    }


def metrics_line(rng: random.Random, step: int, skill: float, time_s: float) -> dict[str, Any]:
    weights = dict(zip(KINDS, (0.3, 0.08, 0.25, 0.12, 0.25), strict=True))
    rollout_s, grade_s = 0.7 + 0.1 * rng.random(), 0.12 + 0.02 * rng.random()
    policy_s, optimizer_s = 0.4 + 0.1 * rng.random(), 0.05
    return {
        "step": step,
        "time_s": round(time_s, 3),
        "reward": skill + rng.gauss(0, 0.04),
        "reward_std": 0.3 * (1 - skill),
        "frac_reward_zero_std": min(0.9, 0.2 + 0.7 * skill**2 + rng.gauss(0, 0.03)),
        "entropy": 1.1 * math.exp(-2 * skill) + rng.gauss(0, 0.02),
        "clip_ratio/low_mean": 0.0,
        "clip_ratio/high_mean": max(0.0, 0.012 + rng.gauss(0, 0.004)),
        "clip_ratio/region_mean": max(0.0, 0.012 + rng.gauss(0, 0.004)),
        "grad_norm": 0.8 + rng.gauss(0, 0.15),
        "learning_rate": 1e-3,
        "loss": rng.gauss(0, 0.01),
        "completions/mean_length": 34 - 10 * skill + rng.gauss(0, 1),
        "completions/clipped_ratio": max(0.0, 0.02 + rng.gauss(0, 0.01)),
        "num_tokens": step * 96 * 60.0,
        "tokens_per_s": 3600 + rng.gauss(0, 200),
        "rollout/solve_rate": min(1.0, skill + 0.15),
        "rollout/solve_rate_first": skill,
        "rollout/recovery_rate": min(1.0, 0.2 + 0.5 * skill + rng.gauss(0, 0.03)),
        "rollout/num_turns": 3 - 2 * skill,
        **{f"errors/{kind}": (1 - skill) * weight for kind, weight in weights.items()},
        "time/rollout_s": rollout_s,
        "time/generate_s": 0.9 * rollout_s,
        "time/render_s": 0.1 * rollout_s,
        "time/grade_s": grade_s,
        "time/policy_s": policy_s,
        "time/optimizer_s": optimizer_s,
        "time/step_s": rollout_s + grade_s + policy_s + optimizer_s,
    }


def skill_at(step: int, num_steps: int) -> float:
    return 0.33 + 0.45 * (1 - math.exp(-3.5 * step / num_steps))


def result(status: str, num_steps: int) -> dict[str, Any]:
    finished = status in ("succeeded", "stopped")
    metrics = {
        "heldout/solve_rate_before": 0.33,
        "heldout/solve_rate_after": 0.765,
        "heldout/recovery_rate_before": 0.216,
        "heldout/recovery_rate_after": 0.511,
        "heldout/num_tasks": 200.0,
        "time/train_s": 241.3,
    }
    return {
        "schema_version": "1.0",
        "run_id": "k3v9q2",
        "run_name": "swift-fig",
        "status": status,
        "exit_code": {"running": None, "succeeded": 0, "interrupted": 130}.get(status, 1),
        "error": None,
        "metrics": metrics if finished else {},
        "engagement": [
            {
                "knob": "po.epsilon_high",
                "metric": "clip_ratio/high_mean",
                "value": 0.012,
                "engaged": True,
                "note": "acted in 58 of 60 logged steps, strongest clip_ratio/high_mean = 0.021",
            },
            {
                "knob": "po.epsilon",
                "metric": "clip_ratio/low_mean",
                "value": 0.0,
                "engaged": False,
                "note": "never engaged: clip_ratio/low_mean stayed at 0 in 60 logged steps; raise updates_per_rollout",
            },
            {
                "knob": "po.dynamic_sampling",
                "metric": "dynamic_sampling/rounds",
                "value": None,
                "engaged": None,
                "note": "not measured: dynamic_sampling/rounds was never logged",
            },
        ]
        if finished
        else [],
        "seeds": {"seed": 0},
        "stage": "rl",
        "started_at": "2026-03-02T14:05:11.120000+00:00",
        "ended_at": None if status == "running" else "2026-03-02T14:09:28.420000+00:00",
        "duration_s": None if status == "running" else 257.3,
        "git_revision": "1f0c9a7e5d3b2a498877665544332211ffeeddcc",
        "git_dirty": False,
        "package_versions": {"python": "3.11.9", "composer_rl": "0.1.0", "torch": "2.13.0", "trl": "1.16.0"},
        "platform": {"system": "Linux", "machine": "x86_64", "cpu_count": 2},
        "command": ["train.py", "seed=0"],
        "overrides": ["seed=0"],
        "choices": {"po": "dr_grpo", "loss": "policy_only", "env": "micro", "model": "tiny", "stage": "rl"},
        "config": {
            "seed": 0,
            "max_steps": None,
            "run_name": None,
            "po": {"_target_": "composer_rl.po.objective.PolicyObjective", "epsilon": 0.2, "num_generations": 8},
            "env": {"_target_": "composer_rl.envs.micro.MicroEnvironment", "max_turns": 3},
            "loss": {"channels": {}},
            "tracker": {"trackers": {"wandb": {"project": "composer-rl", "tags": []}}},
        },
    }


def write_run(folder: Path, *, status: str = "succeeded", num_steps: int = 60, hostile: bool = False) -> Path:
    """Write result.json, metrics.jsonl and rollouts.jsonl of a run; returns the folder.

    `hostile` puts markup into everything that a model or an error can write.
    """
    rng = random.Random(7)
    folder.mkdir(parents=True, exist_ok=True)
    lines, rollouts, time_s = [], [], 0.0
    for step in range(num_steps + 1):
        skill = skill_at(step, num_steps)
        if step % 15 == 0 or step == num_steps:
            time_s += 6.0
            evaluation = {
                "heldout/solve_rate": min(1.0, max(0.0, skill + rng.gauss(0, 0.015))),
                "heldout/recovery_rate": 0.2 + 0.7 * (skill - 0.33),
                "heldout/num_tasks": 200.0,
                "heldout/num_first_errors": float(round(200 * (1 - skill))),
            }
            lines.append({"step": step, "time_s": round(time_s, 3), **evaluation})
            rollouts += [rollout(random.Random(100 + index), step, "heldout", skill) for index in range(4)]
        if step:
            time_s += 3.6
            line = metrics_line(rng, step, skill, time_s)
            if step % 15 == 0:
                line["time/eval_s"] = 6.0
            lines.append(line)
            rollouts += [rollout(rng, step, "train", skill) for _ in range(3)]
    content = result(status, num_steps)
    if status == "failed":
        content["error"] = {
            "type": "RuntimeError",
            "message": "the sandbox's template process ended" + (HOSTILE if hostile else ""),
            "traceback": 'Traceback (most recent call last):\n  File "run.py", line 1, in <module>\nRuntimeError\n',
        }
    if hostile:
        content["run_name"] = HOSTILE
        content["config"]["note"] = HOSTILE
        content["engagement"].append(
            {"knob": HOSTILE, "metric": HOSTILE, "value": 0.0, "engaged": False, "note": HOSTILE}
        )
        for record in rollouts:
            record["task_id"] += HOSTILE
            record["prompt"][1]["content"] += HOSTILE
            for turn in record["turns"]:
                turn["text"] = call(HOSTILE, HOSTILE, HOSTILE) if turn["error_kind"] != "json_decode" else HOSTILE
                turn["hint"] = HOSTILE
                if turn["error_kind"]:
                    turn["error_kind"] += ' "><script>window.hacked = 1</script>'
                    turn["error_message"] = turn["observation"] = HOSTILE
        for line in lines:
            line[f"errors/{HOSTILE}"] = 0.1
    (folder / "result.json").write_text(json.dumps(content, indent=2))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "rollouts.jsonl").write_text("".join(json.dumps(record) + "\n" for record in rollouts))
    return folder
