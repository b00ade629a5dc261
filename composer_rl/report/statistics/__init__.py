"""Statistics of reports: rates of one run, paired comparisons of a sweep, bands of figures. docs/statistics.md."""

from composer_rl.report.statistics.rates import wilson_interval

__all__ = ["wilson_interval"]
