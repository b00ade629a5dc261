"""Short runs of TRL's own GRPOTrainer for the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from composer_rl.types import Task


def config(folder: Path, **overrides: Any) -> Any:
    from trl import GRPOConfig

    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "max_steps": 2,
        "per_device_train_batch_size": 4,
        "num_generations": 2,
        "max_completion_length": 100,
        "learning_rate": 1e-3,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_steps": 1,
        "beta": 0.0,
    }
    return GRPOConfig(**settings | overrides)


def dataset(tasks: list[Task]) -> Any:
    from datasets import Dataset

    return Dataset.from_list([{"prompt": task.prompt, "task_id": task.task_id} for task in tasks])


def logged(trainer: Any, name: str) -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if name in entry]
