"""Ranges, what TrainingArguments receives, and the learning rates that come out of it, by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from composer_rl.config.build import build
from composer_rl.optim.adamw import AdamWSettings

CONF = Path(__file__).parents[2] / "conf" / "optim"


def rates(settings: AdamWSettings, tmp_path: Path, num_steps: int) -> list[float]:
    """Learning rate in force at each step, from transformers' own optimizer and scheduler."""
    import torch
    from transformers import Trainer, TrainingArguments

    args = TrainingArguments(
        output_dir=str(tmp_path), max_steps=num_steps, use_cpu=True, report_to=[], **settings.to_trainer_kwargs()
    )
    trainer = Trainer(model=torch.nn.Linear(2, 1), args=args)
    trainer.create_optimizer_and_scheduler(num_steps)
    assert trainer.optimizer is not None
    assert trainer.lr_scheduler is not None
    found = []
    for _ in range(num_steps):
        found.append(trainer.optimizer.param_groups[0]["lr"])
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
    return found


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [1.0, 1.0, 1.0, 1.0]),
        ({"warmup_steps": 2}, [0.0, 0.5, 1.0, 1.0]),
        ({"warmup_ratio": 0.5}, [0.0, 0.5, 1.0, 1.0]),
        ({"schedule": "linear"}, [1.0, 0.75, 0.5, 0.25]),
        ({"schedule": "linear", "final_learning_rate": 0.2}, [1.0, 0.8, 0.6, 0.4]),
        ({"schedule": "cosine"}, [(1 + math.cos(math.pi * t / 4)) / 2 for t in range(4)]),
        (
            {"schedule": "cosine", "final_learning_rate": 0.2},
            [0.2 + 0.8 * (1 + math.cos(math.pi * t / 4)) / 2 for t in range(4)],
        ),
        ({"schedule": "linear", "warmup_steps": 1}, [0.0, 1.0, 2 / 3, 1 / 3]),
    ],
)
def test_learning_rates_by_hand(settings: dict[str, Any], expected: list[float], tmp_path: Path) -> None:
    assert rates(AdamWSettings(learning_rate=1.0, **settings), tmp_path, 4) == pytest.approx(expected, abs=1e-9)


def test_the_optimizer_holds_the_settings(tmp_path: Path) -> None:
    import torch
    from transformers import Trainer, TrainingArguments

    settings = AdamWSettings(
        learning_rate=2e-3, beta1=0.8, beta2=0.95, epsilon=1e-6, weight_decay=0.1, max_grad_norm=0.5
    )
    args = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[], **settings.to_trainer_kwargs())
    assert args.max_grad_norm == 0.5
    trainer = Trainer(model=torch.nn.Linear(2, 1), args=args)
    trainer.create_optimizer()
    optimizer = trainer.optimizer
    assert isinstance(optimizer, torch.optim.AdamW)
    decays = sorted(group["weight_decay"] for group in optimizer.param_groups)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["eps"], group["fused"]) == (2e-3, (0.8, 0.95), 1e-6, True)
    assert decays == [0.0, 0.1]
    assert settings.build(torch.nn.Linear(2, 1)) is None
    assert AdamWSettings(fused=False).to_trainer_kwargs()["optim"] == "adamw_torch"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be a finite number above 0, got 0.0"),
        ({"learning_rate": math.nan}, "learning_rate must be a finite number above 0, got nan"),
        (
            {"schedule": "linear", "final_learning_rate": 1e-3},
            r"final_learning_rate must be in \[0, learning_rate=0.001\)",
        ),
        ({"final_learning_rate": 1e-4}, "final_learning_rate is read by schedule=linear and cosine only"),
        ({"warmup_steps": -1}, "warmup_steps must be at least 0, got -1"),
        ({"warmup_ratio": 1.0}, r"warmup_ratio must be in \[0, 1\), got 1.0"),
        ({"warmup_steps": 2, "warmup_ratio": 0.1}, "warmup_steps and warmup_ratio: set at most one, got 2 and 0.1"),
        ({"max_grad_norm": -1.0}, "max_grad_norm must be a finite number of at least 0"),
        ({"beta2": 1.0}, r"beta2 must be in \[0, 1\), got 1.0"),
        ({"epsilon": 0.0}, "epsilon must be a finite number above 0"),
        ({"weight_decay": -0.1}, "weight_decay must be a finite number of at least 0"),
    ],
)
def test_bad_settings_are_refused_by_name_rule_and_value(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AdamWSettings(**settings)


def test_the_shipped_settings() -> None:
    tiny = build(yaml.safe_load((CONF / "adamw.yaml").read_text()), path="optim")
    assert tiny == AdamWSettings(learning_rate=5e-4)
    pretrained = build(yaml.safe_load((CONF / "adamw_hf.yaml").read_text()), path="optim")
    assert (pretrained.learning_rate, pretrained.beta2, pretrained.warmup_steps) == (1e-6, 0.999, 20)


def test_the_clip_is_a_knob_unless_it_is_off() -> None:
    (knob,) = AdamWSettings(max_grad_norm=0.5).knobs()
    assert (knob.name, knob.metric) == ("max_grad_norm", "grad_norm")
    assert knob.acted(0.6)
    assert not knob.acted(0.5)
    assert AdamWSettings(max_grad_norm=0.0).knobs() == []
