"""Intervals and verdicts of sweeps hold what docs/statistics.md promises, on simulated sweeps with fixed seeds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "statistics_coverage.py"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("benchmark_statistics_coverage", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    module._POPULATION = 500_000
    return module


BENCHMARK = load()


@pytest.mark.parametrize("scenario", BENCHMARK.SCENARIOS, ids=lambda scenario: scenario.name)
def test_coverage_of_the_t_interval(scenario: Any) -> None:
    low, high = scenario.covers
    for num_seeds in BENCHMARK.SEEDS:
        assert low <= BENCHMARK.t_coverage(scenario, num_seeds, 10_000) <= high, num_seeds


def test_the_bootstrap_is_too_narrow_for_verdicts() -> None:
    assert BENCHMARK.bootstrap_coverage(BENCHMARK.SCENARIOS[0], 5, 1000, 500) < 0.88


@pytest.mark.parametrize("continuous", [False, True])
def test_a_null_sweep_is_rarely_called_better(continuous: bool) -> None:
    share = BENCHMARK.simulate_sweeps(2000, num_arms=4, num_seeds=5, continuous=continuous)
    assert share.better <= 0.06
    assert share.any <= 0.06


@pytest.mark.parametrize("num_seeds", [2, 3])
def test_coinciding_rates_of_few_seeds_do_not_add_false_verdicts(num_seeds: int) -> None:
    assert BENCHMARK.simulate_sweeps(1000, num_arms=1, num_seeds=num_seeds).any <= 0.065


def test_a_large_effect_is_found() -> None:
    assert BENCHMARK.simulate_sweeps(200, num_seeds=8, effect=0.15).first_better > 0.95


def test_the_printed_tables(capsys: pytest.CaptureFixture[str]) -> None:
    BENCHMARK.main(["--samples", "100", "--bootstrap-samples", "20", "--sweeps", "5"])
    printed = capsys.readouterr().out
    for scenario in BENCHMARK.SCENARIOS:
        assert f"| {scenario.name} |" in printed
    assert "| 4 x 5 | rates of 200 |" in printed
    assert "| 0.05 |" in printed
    assert "| 0.5 | 8 | 34 |" in printed


def test_the_documentation_has_every_row() -> None:
    text = (SCRIPT.parents[1] / "docs" / "statistics.md").read_text(encoding="utf-8")
    for scenario in BENCHMARK.SCENARIOS:
        assert f"| {scenario.name} |" in text
