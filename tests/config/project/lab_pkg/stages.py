"""A stage without torch that can end in every way a run can end."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from composer_rl.errors import EngagementError
from composer_rl.stages.base import RunContext, Stage, StageResult


@dataclass(kw_only=True)
class Probe(Stage):
    """Writes what it was given to probe.json, then ends as told."""

    needs_torch: ClassVar[bool] = False

    ending: Literal["good", "stop", "bug", "known_error", "void", "wait", "interrupt"] = "good"
    """How the run ends; `wait` sleeps until a signal arrives, `interrupt` is Ctrl-C after the steps."""
    rate: float = 0.5
    """At least 0."""
    hidden_default: int = 7
    """Not spelled out in the YAML."""
    notes: dict[str, str] = field(default_factory=dict)
    """Free text."""
    max_steps: int = 3
    """Steps that are logged."""

    def __post_init__(self) -> None:
        if self.rate < 0:
            raise ValueError(f"rate must be at least 0, got {self.rate}")

    def run(self, context: RunContext) -> StageResult:
        """Log a few steps and end."""
        os.environ["WANDB_RUN_ID"] = "left-by-a-job"
        facts = {
            "wandb_run_id": os.environ.get("WANDB_RUN_ID_SEEN", ""),
            "resume": context.resume,
            "run_dir": str(context.run_dir),
            "random": random.random(),
            "heavy": sorted({"torch", "transformers", "trl", "peft", "wandb", "datasets"} & set(sys.modules)),
            "config_notes": context.config["stage"].get("notes"),
        }
        (context.run_dir / "probe.json").write_text(json.dumps(facts))
        if self.ending == "wait":
            (context.run_dir / "waiting").touch()
            time.sleep(60)
        if self.ending == "bug":
            raise RuntimeError("the stage broke, token sk-aaaaaaaaaaaaaaaaaaaaaaaa")
        if self.ending == "known_error":
            raise EngagementError("loss.alpha_sdpo never found an error site")
        for step in range(1, (context.max_steps or self.max_steps) + 1):
            context.trackers.log({"reward": step / 10}, step=step)
        if self.ending == "interrupt":
            raise KeyboardInterrupt
        return StageResult(
            metrics={"heldout/solve_rate_after": 0.5, "not_finite": float("nan")},
            engagement=[{"knob": "po.epsilon", "metric": "clip_ratio", "value": 0.0, "engaged": False, "note": ""}],
            stopped="the guard said so" if self.ending == "stop" else None,
            void="loss.channels.sdpo.weight never engaged" if self.ending == "void" else None,
        )
