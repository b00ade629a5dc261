"""Device, threads and batch settings of a run."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from composer_rl.config.build import build
from composer_rl.errors import ConfigError
from composer_rl.runtime import Runtime, available_cores


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_threads": 0}, "runtime.num_threads must be at least 1 or null, got 0"),
        ({"micro_batch_size": 0}, "runtime.micro_batch_size must be at least 1 or null, got 0"),
        ({"device": "gpu"}, "runtime.device must be one of 'auto', 'cpu', 'cuda', got 'gpu'"),
    ],
)
def test_bad_settings_are_refused_with_the_path(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build({"_target_": "composer_rl.runtime.Runtime", **settings}, path="runtime")


def test_the_shipped_default_is_the_constructors() -> None:
    path = Path(__file__).parents[1] / "conf" / "runtime" / "auto.yaml"
    assert build(yaml.safe_load(path.read_text()), path="runtime") == Runtime()


def test_threads_default_to_the_cores_of_the_process() -> None:
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
    assert Runtime().threads == min(available_cores(), 16)
    assert Runtime(num_threads=3).threads == 3


def test_prepare_sets_what_torch_reads_at_import_and_imports_nothing() -> None:
    code = (
        "import os, sys; from composer_rl.runtime import Runtime; "
        "Runtime(num_threads=2, device='cpu', deterministic=True).prepare(); "
        "names = ['OMP_NUM_THREADS', 'OMP_WAIT_POLICY', 'CUDA_VISIBLE_DEVICES', 'CUBLAS_WORKSPACE_CONFIG']; "
        "print([os.environ[n] for n in names], 'torch' in sys.modules)"
    )
    environment = {"PATH": os.environ["PATH"]}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "['2', 'PASSIVE', '', ':4096:8'] False"


def test_apply_seeds_everything() -> None:
    import numpy as np
    import torch

    threads = torch.get_num_threads()

    def draw() -> tuple[float, float, float]:
        Runtime(num_threads=threads).apply(seed=5)
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    assert draw() == draw()
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_missing_gpu_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert Runtime().torch_device() == "cpu"
    with pytest.raises(ConfigError, match=r"runtime.device is cuda, but torch sees no GPU"):
        Runtime(device="cuda").apply(seed=0)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert Runtime().torch_device() == "cuda"
