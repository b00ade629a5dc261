"""Which figures a page shows, with the words a reader needs to read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from composer_rl.report.collect import RunData
from composer_rl.report.figures import (
    clipping_figure,
    entropy_figure,
    errors_figure,
    gradient_figure,
    heldout_figure,
    heldout_reward_figure,
    length_figure,
    loss_figure,
    reward_figure,
    timing_figure,
    zero_variance_figure,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One figure with what a reader needs to read it."""

    name: str
    """Letters and dashes; unique on a page."""
    title: str
    caption: str
    figure: go.Figure
    wide: bool = False
    """Takes the whole width of a page."""


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """A panel before its figure is built."""

    name: str
    title: str
    caption: str
    build: Callable[[RunData], go.Figure | None]
    wide: bool = False


def _plans() -> tuple[_Plan, ...]:
    return (
        _Plan(
            name="heldout",
            title="Held-out tasks",
            caption="First-attempt solve rate, and the share of first-attempt errors repaired on the second turn, with "
            "95% Wilson intervals. No hints.",
            build=heldout_figure,
            wide=True,
        ),
        _Plan(
            name="heldout-reward",
            title="Held-out prompts",
            caption="Mean reward of one sampled answer a prompt.",
            build=heldout_reward_figure,
            wide=True,
        ),
        _Plan(
            name="loss",
            title="Loss",
            caption="Mean loss of a step's tokens in nats.",
            build=loss_figure,
            wide=True,
        ),
        _Plan(
            name="reward",
            title="Training reward",
            caption="Mean reward of each step's rollouts, its running mean, and the share solved at the first attempt.",
            build=reward_figure,
        ),
        _Plan(
            name="errors",
            title="First-attempt errors",
            caption="Share of training rollouts whose first turn ended in each kind of error.",
            build=errors_figure,
        ),
        _Plan(
            name="entropy",
            title="Entropy",
            caption="Mean entropy of the sampled tokens in nats.",
            build=entropy_figure,
        ),
        _Plan(
            name="clipping",
            title="Clipped tokens",
            caption="Share of tokens whose ratio the objective clipped. Zero throughout means that clipping never "
            "acted.",
            build=clipping_figure,
        ),
        _Plan(
            name="length",
            title="Response length",
            caption="Mean tokens of a completion, and the share cut off at the length limit.",
            build=length_figure,
        ),
        _Plan(
            name="signal",
            title="Groups without signal",
            caption="Share of groups whose rollouts all got the same reward: they give no advantage.",
            build=zero_variance_figure,
        ),
        _Plan(
            name="optimisation",
            title="Gradient norm and KL",
            caption="Gradient norm before clipping; KL divergence to the reference policy where there is one.",
            build=gradient_figure,
        ),
        _Plan(
            name="time",
            title="Where a step's time goes",
            caption="Seconds per optimizer step by part; neighbouring steps are averaged.",
            build=timing_figure,
            wide=True,
        ),
    )


def run_panels(run: RunData) -> list[Panel]:
    """All figures that the run has data for, the most telling ones first."""
    panels = []
    for plan in _plans():
        figure = plan.build(run)
        if figure is not None:
            figure.update_layout(showlegend=len(figure.data) > 1)
            panel = Panel(name=plan.name, title=plan.title, caption=plan.caption, figure=figure, wide=plan.wide)
            panels.append(panel)
    return in_rows(panels)


def in_rows(panels: list[Panel]) -> list[Panel]:
    """The same panels with no hole between them: two narrow ones share a row, one left over takes its row alone."""
    narrow = [index for index, panel in enumerate(panels) if not panel.wide]
    if len(narrow) % 2:
        panels = [*panels]
        panels[narrow[-1]] = replace(panels[narrow[-1]], wide=True)
    return panels


def describe(panel: Panel) -> str:
    """The figure in words, for readers who do not see it: each line's first and last value."""
    lines: Iterable[Any] = panel.figure.data
    parts = []
    for trace in lines:
        values = list(trace.y) if trace.y is not None else []
        if values and trace.hoverinfo != "skip":
            parts.append(f"{trace.name}: from {values[0]:.3g} to {values[-1]:.3g}")
    return f"{panel.title}. " + "; ".join(parts) + "."
