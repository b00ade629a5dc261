"""Statistics of reports: rates of one run, paired comparisons of a sweep, bands of figures. docs/statistics.md."""

from composer_rl.report.statistics.bands import Band, bootstrap_band
from composer_rl.report.statistics.paired import (
    PairedDifference,
    holm_adjust,
    paired_difference,
    seeds_needed,
    t_interval,
)
from composer_rl.report.statistics.rates import wilson_interval
from composer_rl.report.statistics.robust import (
    Estimate,
    interquartile_mean,
    probability_of_improvement,
    stratified_bootstrap_interval,
)
from composer_rl.report.statistics.verdict import ArmScores, Verdict, VerdictKind, judge

__all__ = [
    "ArmScores",
    "Band",
    "Estimate",
    "PairedDifference",
    "Verdict",
    "VerdictKind",
    "bootstrap_band",
    "holm_adjust",
    "interquartile_mean",
    "judge",
    "paired_difference",
    "probability_of_improvement",
    "seeds_needed",
    "stratified_bootstrap_interval",
    "t_interval",
    "wilson_interval",
]
