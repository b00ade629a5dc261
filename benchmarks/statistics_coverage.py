"""How often the intervals of a sweep's report hold what they promise, on simulated sweeps.

    python benchmarks/statistics_coverage.py

Prints four tables: coverage of nominal 95% intervals for the mean paired difference (Student's t as the verdicts use
it, and the percentile bootstrap of the bands), false verdicts of sweeps in which no arm differs from the baseline, how
often a real effect is found, and what "about k seeds would be needed" says where the truth is known. Seeds are fixed;
the samples and sweeps are as many as the arguments say.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import cache

import numpy as np

from composer_rl.report.statistics import ArmScores, VerdictKind, judge, t_interval

NUM_TASKS = 200
"""Tasks behind a simulated solve rate."""
SEEDS = (5, 8, 20)
_POPULATION = 2_000_000
"""Draws that stand for the true mean of a scenario."""

Draw = Callable[[np.random.Generator, tuple[int, int]], tuple[np.ndarray, np.ndarray]]
"""Scores of baseline and arm, each `(samples, num_seeds)`."""


@dataclass(frozen=True)
class Scenario:
    """Two arms of a simulated sweep."""

    name: str
    draw: Draw
    resolution: float = 0.0
    covers: tuple[float, float] = (0.93, 0.97)
    """Where the coverage of the t interval lies at every n of SEEDS; the tests hold docs/statistics.md to it."""


def solve_rate(rng: np.random.Generator, chance: np.ndarray) -> np.ndarray:
    """Share of NUM_TASKS solved, each with the seed's own chance."""
    return rng.binomial(NUM_TASKS, chance) / NUM_TASKS


def rates(baseline: tuple[float, float], arm: tuple[float, float]) -> Draw:
    """Solve rates whose chance varies over seeds as Beta(a, b), differently for the two arms."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        return solve_rate(rng, rng.beta(*baseline, shape)), solve_rate(rng, rng.beta(*arm, shape))

    return draw


def normal(baseline_std: float, arm_std: float) -> Draw:
    """Normal scores around an effect of the seed that both arms share."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        seed_effect = rng.normal(0.7, 0.05, shape)
        return seed_effect + rng.normal(0, baseline_std, shape), seed_effect + rng.normal(0.02, arm_std, shape)

    return draw


def collapsing(share: float) -> Draw:
    """A baseline around 0.88, and an arm around 0.93 of which a share of the seeds ends near 0.05."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        chance = np.where(rng.random(shape) < share, rng.beta(5, 95, shape), rng.beta(93, 7, shape))
        return solve_rate(rng, rng.beta(88, 12, shape)), solve_rate(rng, chance)

    return draw


def lognormal(sigma: float) -> Draw:
    """Scores without a ceiling and with a long tail on the arm's side: seconds, lengths."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        return rng.normal(1, 0.1, shape), rng.lognormal(0, sigma, shape)

    return draw


STEP = 1 / NUM_TASKS
SCENARIOS = (
    Scenario("normal, shared seed effect", normal(0.03, 0.03)),
    Scenario("normal, arm's spread 5 times the baseline's", normal(0.02, 0.10)),
    Scenario("rates near 0.6 and 0.7: Beta(12, 8), Beta(14, 6)", rates((12, 8), (14, 6)), STEP),
    Scenario("rates near 0.90 and 0.95: Beta(45, 5), Beta(57, 3)", rates((45, 5), (57, 3)), STEP),
    Scenario("skewed rates, 0.83 and 0.90: Beta(10, 2), Beta(9, 1)", rates((10, 2), (9, 1)), STEP),
    Scenario("rates near the floor, 0.01 and 0.03: Beta(2, 198), Beta(3, 97)", rates((2, 198), (3, 97)), STEP),
    Scenario("both at the ceiling, 0.998: Beta(998, 2)", rates((998, 2), (998, 2)), STEP, (0.97, 1.0)),
    Scenario("0.90 against the ceiling, 0.995: Beta(45, 5), Beta(199, 1)", rates((45, 5), (199, 1)), STEP),
    Scenario("both arms strongly skewed: Beta(4, 0.4)", rates((4, 0.4), (4, 0.4)), STEP, (0.93, 0.98)),
    Scenario("one arm strongly skewed: Beta(88, 12), Beta(4, 0.4)", rates((88, 12), (4, 0.4)), STEP, (0.60, 0.93)),
    Scenario("1 seed in 5 of the arm collapses", collapsing(0.2), STEP, (0.60, 0.93)),
    Scenario("1 seed in 20 of the arm collapses", collapsing(0.05), STEP, (0.60, 0.93)),
    Scenario("long tail on one side: lognormal, sigma 1", lognormal(1.0), 0.0, (0.80, 0.93)),
)


def t_coverage(scenario: Scenario, num_seeds: int, num_samples: int) -> float:
    """Share of samples whose 95% t interval holds the true mean difference."""
    differences, truth = _differences(scenario, num_seeds, num_samples), true_difference(scenario)
    _, low, high, _, _ = t_interval(differences, resolution=scenario.resolution)
    return float(np.mean((low <= truth) & (truth <= high)))


def bootstrap_coverage(scenario: Scenario, num_seeds: int, num_samples: int, num_resamples: int = 1000) -> float:
    """The same for a percentile bootstrap of the mean."""
    differences, truth = _differences(scenario, num_seeds, num_samples), true_difference(scenario)
    rng = np.random.default_rng(1)
    weights = rng.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), size=num_resamples) / num_seeds
    low, high = np.percentile(differences @ weights.T, [2.5, 97.5], axis=1)
    return float(np.mean((low <= truth) & (truth <= high)))


@cache
def true_difference(scenario: Scenario) -> float:
    """Mean difference of the scenario, from many more draws than any sample has."""
    baseline, arm = scenario.draw(np.random.default_rng(7), (_POPULATION // 10, 10))
    return float(arm.mean() - baseline.mean())


def _differences(scenario: Scenario, num_seeds: int, num_samples: int) -> np.ndarray:
    baseline, arm = scenario.draw(np.random.default_rng([0, num_seeds]), (num_samples, num_seeds))
    return arm - baseline


@dataclass(frozen=True)
class Verdicts:
    """Shares of simulated sweeps."""

    first_better: float
    """The first arm called better."""
    better: float
    """At least one arm called better."""
    any: float
    """At least one arm called better or worse."""


def simulate_sweeps(
    num_sweeps: int, *, num_arms: int = 4, num_seeds: int = 5, effect: float = 0.0, continuous: bool = False
) -> Verdicts:
    """Judges sweeps of which only the first arm differs from the baseline, by `effect`.

    A seed moves all arms alike with a standard deviation of 0.05, each run adds its own of 0.03; scores are solve rates
    of NUM_TASKS with that chance, or the chance itself if continuous.
    """
    rng = np.random.default_rng([3, num_arms, num_seeds])
    resolution = 0.0 if continuous else STEP
    counts = np.zeros(3)
    for _ in range(num_sweeps):
        chance = rng.normal(0.7, 0.05, num_seeds) + rng.normal(0, 0.03, (num_arms + 1, num_seeds))
        chance[1] += effect
        scores = chance if continuous else solve_rate(rng, chance.clip(0, 1))
        baseline, *rows = (ArmScores(dict(enumerate(row))) for row in scores.tolist())
        arms = {str(index): arm for index, arm in enumerate(rows)}
        kinds = [verdict.kind for verdict in judge(baseline, arms, resolution=resolution).values()]
        better = VerdictKind.BETTER in kinds
        counts += (kinds[0] is VerdictKind.BETTER, better, better or VerdictKind.WORSE in kinds)
    return Verdicts(*(counts / num_sweeps).tolist())


def seeds_said_to_be_needed(effect: float, num_seeds: int, num_sweeps: int) -> np.ndarray:
    """10%, 50% and 90% quantile of `seeds_needed` over comparisons of one arm that are not separable.

    Args:
        effect: True mean difference in standard deviations of the differences.
    """
    rng = np.random.default_rng([4, num_seeds])
    needed = []
    for differences in rng.normal(effect, 1, (num_sweeps, num_seeds)).tolist():
        verdict = judge(
            ArmScores(dict.fromkeys(range(num_seeds), 0.0)), {"arm": ArmScores(dict(enumerate(differences)))}
        )
        if (number := verdict["arm"].seeds_needed) is not None:
            needed.append(number)
    return np.quantile(needed, [0.1, 0.5, 0.9])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Coverage and false verdicts of the statistics of sweeps.")
    parser.add_argument("--samples", type=int, default=40_000, help="samples behind each t coverage")
    parser.add_argument("--bootstrap-samples", type=int, default=5_000, help="samples behind each bootstrap coverage")
    parser.add_argument("--sweeps", type=int, default=2_000, help="sweeps behind each row of verdicts")
    options = parser.parse_args(arguments)

    print(f"{date.today()}, Python {platform.python_version()}, {' '.join(sys.argv[1:]) or 'defaults'}\n")
    columns = [f"{kind}, n = {num}" for kind in ("t", "bootstrap") for num in SEEDS]
    print(f"| scores of baseline and arm | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 1) + "|")
    for scenario in SCENARIOS:
        cells = [t_coverage(scenario, num, options.samples) for num in SEEDS]
        cells += [bootstrap_coverage(scenario, num, options.bootstrap_samples) for num in SEEDS]
        print(f"| {scenario.name} | {' | '.join(f'{100 * cell:.1f}%' for cell in cells)} |")

    print("\n| null sweeps: arms x seeds | scores | a false better | a false better or worse |\n|---|---|---|---|")
    for num_arms, num_seeds in ((1, 2), (1, 3), (1, 5), (4, 3), (4, 5), (4, 8), (4, 20), (12, 5)):
        for continuous in (False, True):
            share = simulate_sweeps(options.sweeps, num_arms=num_arms, num_seeds=num_seeds, continuous=continuous)
            scores = "continuous" if continuous else f"rates of {NUM_TASKS}"
            print(f"| {num_arms} x {num_seeds} | {scores} | {100 * share.better:.1f}% | {100 * share.any:.1f}% |")

    print("\n| true difference of one arm of 4 | found at n = 5 | n = 8 | n = 20 |\n|---|---|---|---|")
    for effect in (0.03, 0.05, 0.10):
        found = [simulate_sweeps(options.sweeps, num_seeds=num, effect=effect).first_better for num in SEEDS]
        print(f"| {effect:.2f} | {' | '.join(f'{100 * share:.0f}%' for share in found)} |")

    print("\n| true effect, in standard deviations | seeds | would be needed | said: 10% | median | 90% |")
    print("|---" * 6 + "|")
    for effect, truth in ((0.0, "no number"), (0.5, "34"), (1.0, "10")):
        for num in (5, 8):
            said = seeds_said_to_be_needed(effect, num, options.sweeps)
            print(f"| {effect} | {num} | {truth} | {' | '.join(f'{number:.0f}' for number in said)} |")


if __name__ == "__main__":
    main()
