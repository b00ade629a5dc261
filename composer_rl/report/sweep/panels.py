"""Which figures the page of a sweep shows, with the words a reader needs to read them."""

from __future__ import annotations

from composer_rl.report.panels import Panel, in_rows
from composer_rl.report.sweep.comparison import Comparison
from composer_rl.report.sweep.figures import curves_figure, differences_figure, finals_figure, heatmap_figure

_TITLES = {
    "heldout/solve_rate": "Held-out tasks solved at the first attempt",
    "heldout/recovery_rate": "Held-out errors repaired",
    "heldout/reward": "Held-out reward",
    "heldout/loss": "Held-out loss",
}
_BAND = "Mean over seeds with its 95% bootstrap band at each step; with few seeds it is too narrow to judge by."


def sweep_panels(comparison: Comparison) -> list[Panel]:
    """All figures that the arms have data for."""
    objective = comparison.objective
    curve = objective.curve
    better = "Lower is better." if objective.minimize else "Higher is better."
    plans = [
        ("objective", _TITLES.get(curve, curve), _BAND, True,
         curves_figure(comparison, curve, curve, is_rate=objective.is_rate)),
        ("finals", "Final scores",
         f"{objective.metric}: a dot a seed; the diamond is the interquartile mean with its 95% bootstrap interval. "
         f"{better}", False, finals_figure(comparison)),
        ("differences", "Differences seed by seed",
         "Arm minus baseline on the same seed; the diamond is the mean with the interval of its verdict. Void arms are "
         "left out.", False, differences_figure(comparison)),
        ("reward", "Training reward", f"Each seed's running mean. {_BAND}", False,
         curves_figure(comparison, "reward", "reward", smooth=True)),
        ("entropy", "Entropy", f"Nats per sampled token, each seed's running mean. {_BAND}", False,
         curves_figure(comparison, "entropy", "nats", smooth=True)),
        ("grid", "Both swept settings", f"Mean of {objective.metric} over seeds. {better}", True,
         heatmap_figure(comparison)),
    ]  # fmt: skip
    panels = [
        Panel(name=name, title=title, caption=caption, figure=figure, wide=wide)
        for name, title, caption, wide, figure in plans
        if figure is not None
    ]
    return in_rows(panels)


def in_words(panel: Panel, comparison: Comparison) -> str:
    """The figure in words, for readers who do not see it: the arms with their final means."""
    means = [
        f"{result.arm.label}: {result.mean:.3g} over {len(result.scores)} seeds"
        for result in comparison.results
        if result.mean is not None
    ]
    return f"{panel.title}. {comparison.objective.metric}, {'; '.join(means) or 'no scores yet'}."
