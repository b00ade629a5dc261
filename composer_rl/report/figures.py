"""Plotly figures of a run. Each builder answers None when the run logged nothing that it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from composer_rl.report.collect import RunData, Series
from composer_rl.report.drawing import (
    BLUE,
    GOLD,
    GREEN,
    GREY,
    ORANGE,
    PALETTE,
    PERCENT,
    PURPLE,
    RED,
    TEAL,
    add_line,
    base_figure,
    label_text,
    running_mean,
    with_alpha,
)
from composer_rl.report.statistics import wilson_interval
from composer_rl.types import ERROR_KINDS

if TYPE_CHECKING:
    import plotly.graph_objects as go

KIND_COLORS = dict(zip(ERROR_KINDS, (BLUE, PURPLE, ORANGE, RED, GREY, TEAL), strict=True))
"""One colour an error kind, in the figures and on the badges."""
_PARTS = {"rollout": BLUE, "grade": TEAL, "reward": GOLD, "policy": ORANGE, "optimizer": GREEN, "eval": PURPLE}
"""Parts of a step that do not overlap; other timings are parts of these or contain them."""
_MAX_BARS = 40


def heldout_figure(run: RunData) -> go.Figure | None:
    """Held-out solve rate with its Wilson band, and recovery rate."""
    solved = _get(run, "heldout/solve_rate")
    if solved is None:
        return None
    figure = base_figure("share", percent=True)
    _add_interval(figure, run, solved, "heldout/num_tasks", BLUE)
    add_line(figure, "solved at the first attempt", solved, BLUE, markers=True)
    if (recovered := _get(run, "heldout/recovery_rate")) is not None:
        _add_interval(figure, run, recovered, "heldout/num_first_errors", ORANGE)
        add_line(figure, "errors repaired on the second turn", recovered, ORANGE, markers=True, dash="dot")
    figure.update_yaxes(range=[0, 1])
    return figure


def heldout_reward_figure(run: RunData) -> go.Figure | None:
    """Mean reward on held-out prompts, for data that nothing grades as solved or not."""
    figure = _simple(run, "reward", {"heldout/reward": ("mean reward", BLUE)})
    if figure is not None:
        figure.update_traces(mode="lines+markers")
    return figure


def loss_figure(run: RunData) -> go.Figure | None:
    """Training and held-out loss of a run without rewards (on-policy, a policy loss stays near 0 and says nothing)."""
    if "reward" in run.series:
        return None
    return _simple(run, "loss", {"loss": ("training", BLUE), "heldout/loss": ("held out", ORANGE)})


def reward_figure(run: RunData) -> go.Figure | None:
    """Training reward with a running mean, and the first-attempt solve rate of the rollouts."""
    reward = _get(run, "reward")
    if reward is None:
        return None
    figure = base_figure("reward")
    add_line(figure, "reward", reward, BLUE, opacity=0.35, width=1)
    add_line(figure, "running mean", running_mean(reward), BLUE)
    if (solved := _get(run, "rollout/solve_rate_first")) is not None:
        add_line(figure, "solved at the first attempt", running_mean(solved), GREEN, dash="dot")
    return figure


def errors_figure(run: RunData) -> go.Figure | None:
    """Stacked shares of first attempts by error kind."""
    found = {name.removeprefix("errors/"): series for name, series in run.series.items() if name.startswith("errors/")}
    if not found:
        return None
    ordered = [kind for kind in ERROR_KINDS if kind in found] + sorted(found.keys() - set(ERROR_KINDS))
    steps = sorted({step for series in found.values() for step in series.steps})
    figure = base_figure("share of rollouts", percent=True)
    for index, kind in enumerate(ordered):
        color = KIND_COLORS.get(kind, PALETTE[index % len(PALETTE)])
        # A kind that does not occur in a step is not logged there: its share is 0.
        logged = dict(zip(found[kind].steps, found[kind].values, strict=True))
        shares = running_mean(Series(steps=tuple(steps), values=tuple(logged.get(step, 0.0) for step in steps)))
        add_line(
            figure, label_text(kind), shares, color, width=1, stackgroup="kinds", fillcolor=with_alpha(color, 0.55)
        )
    return figure


def entropy_figure(run: RunData) -> go.Figure | None:
    """Token entropy."""
    return _simple(run, "nats", {"entropy": ("entropy", PURPLE)})


def clipping_figure(run: RunData) -> go.Figure | None:
    """Clip fractions on either side."""
    names = {
        "clip_ratio/high_mean": ("above the upper bound", ORANGE),
        "clip_ratio/low_mean": ("below the lower bound", BLUE),
        "cispo_clip_ratio": ("weight capped", PURPLE),
    }
    if not any(name in run.series for name in names):
        names = {"clip_ratio/region_mean": ("clipped", ORANGE)}
    return _simple(run, "share of tokens", names, percent=True)


def length_figure(run: RunData) -> go.Figure | None:
    """Completion length and the share cut off."""
    figure = _simple(run, "tokens", {"completions/mean_length": ("mean length", TEAL)})
    cut = _get(run, "completions/clipped_ratio")
    if figure is not None and cut is not None:
        add_line(figure, "cut off (right axis)", cut, RED, dash="dot", yaxis="y2")
        figure.update_layout(
            yaxis2={
                "overlaying": "y",
                "side": "right",
                "tickmode": "auto",
                "tickformat": PERCENT,
                "rangemode": "tozero",
                "showgrid": False,
            }
        )
    return figure


def zero_variance_figure(run: RunData) -> go.Figure | None:
    """Share of groups in which all rewards are equal."""
    return _simple(run, "share of groups", {"frac_reward_zero_std": ("equal rewards", GREY)}, percent=True, top=1.0)


def gradient_figure(run: RunData) -> go.Figure | None:
    """Gradient norm, and KL where it is logged."""
    return _simple(run, "", {"grad_norm": ("gradient norm", GREEN), "kl": ("KL to the reference", RED)})


def timing_figure(run: RunData) -> go.Figure | None:
    """Stacked bars of seconds per step by part."""
    parts = timing_parts(run)
    if not parts:
        return None
    import plotly.graph_objects as go

    figure = base_figure("seconds per step")
    steps = sorted({step for _, series in parts for step in series.steps})
    size = -(-len(steps) // _MAX_BARS)
    bins = [steps[start : start + size] for start in range(0, len(steps), size)]
    for name, series in parts:
        logged = dict(zip(series.steps, series.values, strict=True))
        figure.add_trace(
            go.Bar(
                name=name,
                x=[chunk[len(chunk) // 2] for chunk in bins],
                y=[sum(logged.get(step, 0.0) for step in chunk) / len(chunk) for chunk in bins],
                marker={"color": _PARTS[name], "line": {"width": 0}},
                hovertemplate="%{y:.3g} s",
            )
        )
    figure.update_layout(barmode="stack", bargap=0.15)
    return figure


def timing_parts(run: RunData) -> list[tuple[str, Series]]:
    """Seconds per step of each part that was timed (`rollout`, `grade`, ...), in the order of a step."""
    found = ((name, _get(run, f"time/{name}_s")) for name in _PARTS)
    return [(name, series) for name, series in found if series is not None]


def _simple(
    run: RunData, title: str, names: dict[str, tuple[str, str]], *, percent: bool = False, top: float | None = None
) -> go.Figure | None:
    """A figure of plain lines: (label, colour) by metric; None when the run has none of them."""
    found = [(label, color, series) for name, (label, color) in names.items() if (series := _get(run, name))]
    if not found:
        return None
    figure = base_figure(title, percent=percent)
    for label, color, series in found:
        add_line(figure, label, series, color)
    figure.update_yaxes(**({"range": [0, top]} if top is not None else {"rangemode": "tozero"}))
    return figure


def _add_interval(figure: go.Figure, run: RunData, rates: Series, num_trials: str, color: str) -> None:
    """The 95% Wilson band of a rate whose number of trials is logged as `num_trials`; nothing where it is not."""
    import plotly.graph_objects as go

    logged, overall = run.series.get(num_trials), run.metrics.get(num_trials)
    bounds = []
    for step, rate in zip(rates.steps, rates.values, strict=True):
        num = (logged.at(step) if logged is not None else None) or overall
        if num is not None and 0.0 <= rate <= 1.0:
            bounds.append((step, *wilson_interval(rate, num)))
    if not bounds:
        return
    steps, low, high = zip(*bounds, strict=True)
    figure.add_trace(
        go.Scatter(
            name="95% interval",
            showlegend=not any(trace.name == "95% interval" for trace in figure.data),
            x=[*steps, *reversed(steps)],
            y=[*high, *reversed(low)],
            mode="lines",
            fill="toself",
            fillcolor=with_alpha(color, 0.18),
            line={"width": 0},
            hoverinfo="skip",
        )
    )


def _get(run: RunData, name: str) -> Series | None:
    series = run.series.get(name)
    return series if series is not None and len(series) else None
