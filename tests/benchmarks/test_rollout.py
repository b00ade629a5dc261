"""The rollout benchmark runs and compares what it says; its figures are not asserted."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "rollout.py"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("benchmark_rollout", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    threads = torch.get_num_threads()
    yield module
    torch.set_num_threads(threads)


def test_it_prints_a_ratio_for_every_contender(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = "--model random --prompts 2 --samples 2 --max-new-tokens 3 --rounds 2 --end-share 0.1"
    monkeypatch.setattr(sys, "argv", ["rollout.py", *arguments.split()])
    benchmark.main()
    printed = capsys.readouterr().out
    assert "2 prompts of" in printed
    for name in ("TRL (transformers generate)", "composer_rl ", "composer_rl, model's own forward"):
        assert name in printed


def test_both_sides_sample_the_same_prompts_with_the_same_ends(benchmark: Any, tmp_path: Path) -> None:
    model, tokenizer = benchmark.load("random")
    ends = benchmark.end_tokens(tokenizer, 0.1)
    assert 0.08 < len(ends) / len(tokenizer) < 0.12
    model.generation_config.eos_token_id = ends
    generate = benchmark.trl_generation(model, tokenizer, samples=4, max_new_tokens=30, folder=str(tmp_path))
    rows = generate(benchmark.testbed_prompts(tokenizer, 2))
    assert len(rows) == 8
    assert all(row[-1] in ends or len(row) == 30 for row in rows)
    assert all(token not in ends for row in rows for token in row[:-1])
