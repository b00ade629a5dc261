from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from composer_rl.trackers.base import RunInfo


@pytest.fixture
def make_info(tmp_path: Path) -> Callable[..., RunInfo]:
    """A RunInfo for a run in `tmp_path`; keyword arguments replace fields."""

    def make(**fields: Any) -> RunInfo:
        defaults: dict[str, Any] = {
            "run_id": "id1",
            "run_name": "swift-fig",
            "run_dir": tmp_path,
            "config": {"seed": 0, "po": {"epsilon": 0.2, "loss_type": "dr_grpo"}},
        }
        return RunInfo(**(defaults | fields))

    return make


@pytest.fixture
def summary() -> dict[str, Any]:
    """The part of result.json that trackers read."""
    return {
        "metrics": {
            "heldout/solve_rate_before": 0.31,
            "heldout/solve_rate_after": 0.76,
            "heldout/num_tasks": 200.0,
            "time/train_s": 240.2,
            "broken": float("nan"),
        },
        "engagement": [
            {
                "knob": "epsilon_high",
                "metric": "clip_ratio/high_mean",
                "value": 0.0,
                "engaged": False,
                "note": "never engaged: one update",
            },
            {"knob": "temperature", "metric": "entropy", "value": 0.4, "engaged": True, "note": ""},
        ],
    }
