"""Plotly figures of a run. Each builder answers None when the run logged nothing that it shows.

Colours are mid-tones that keep a contrast of at least 3:1 on white and on near-black, so one figure serves a light and
a dark page; text and grid colours are the page's.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from composer_rl.report.collect import RunData, Series
from composer_rl.report.statistics import wilson_interval
from composer_rl.types import ERROR_KINDS

if TYPE_CHECKING:
    import plotly.graph_objects as go

BLUE, ORANGE, GREEN, PURPLE, RED, GREY, GOLD, TEAL = (
    "#3b82d6",
    "#d9730d",
    "#1a9a6c",
    "#9a60c8",
    "#d64550",
    "#7a8594",
    "#a88400",
    "#1793a5",
)
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, RED, GOLD, TEAL, GREY)
KIND_COLORS = dict(zip(ERROR_KINDS, (BLUE, PURPLE, ORANGE, RED, GREY, TEAL), strict=True))
"""One colour an error kind, in the figures and on the badges."""
_PARTS = {"rollout": BLUE, "grade": TEAL, "reward": GOLD, "policy": ORANGE, "optimizer": GREEN, "eval": PURPLE}
"""Parts of a step that do not overlap; other timings are parts of these or contain them."""
_PERCENT = ".2~%"
"""d3 format: two significant digits, no trailing zeros (0.5%, 60%)."""
_MAX_POINTS = 1500
_MAX_BARS = 40
_LONGEST_LABEL = 28


def heldout_figure(run: RunData) -> go.Figure | None:
    """Held-out solve rate with its Wilson band, and recovery rate."""
    solved = _get(run, "heldout/solve_rate")
    if solved is None:
        return None
    figure = _figure("share", percent=True)
    _add_interval(figure, run, solved, "heldout/num_tasks", BLUE)
    _add_line(figure, "solved at the first attempt", solved, BLUE, markers=True)
    if (recovered := _get(run, "heldout/recovery_rate")) is not None:
        _add_interval(figure, run, recovered, "heldout/num_first_errors", ORANGE)
        _add_line(figure, "errors repaired on the second turn", recovered, ORANGE, markers=True, dash="dot")
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
    figure = _figure("reward")
    _add_line(figure, "reward", reward, BLUE, opacity=0.35, width=1)
    _add_line(figure, "running mean", running_mean(reward), BLUE)
    if (solved := _get(run, "rollout/solve_rate_first")) is not None:
        _add_line(figure, "solved at the first attempt", running_mean(solved), GREEN, dash="dot")
    return figure


def errors_figure(run: RunData) -> go.Figure | None:
    """Stacked shares of first attempts by error kind."""
    found = {name.removeprefix("errors/"): series for name, series in run.series.items() if name.startswith("errors/")}
    if not found:
        return None
    ordered = [kind for kind in ERROR_KINDS if kind in found] + sorted(found.keys() - set(ERROR_KINDS))
    steps = sorted({step for series in found.values() for step in series.steps})
    figure = _figure("share of rollouts", percent=True)
    for index, kind in enumerate(ordered):
        color = KIND_COLORS.get(kind, PALETTE[index % len(PALETTE)])
        # A kind that does not occur in a step is not logged there: its share is 0.
        logged = dict(zip(found[kind].steps, found[kind].values, strict=True))
        shares = running_mean(Series(steps=tuple(steps), values=tuple(logged.get(step, 0.0) for step in steps)))
        _add_line(figure, _label(kind), shares, color, width=1, stackgroup="kinds", fillcolor=_alpha(color, 0.55))
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
        _add_line(figure, "cut off (right axis)", cut, RED, dash="dot", yaxis="y2")
        figure.update_layout(
            yaxis2={
                "overlaying": "y",
                "side": "right",
                "tickmode": "auto",
                "tickformat": _PERCENT,
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

    figure = _figure("seconds per step")
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


def running_mean(series: Series, window: int | None = None) -> Series:
    """Mean of the last `window` values at each step; by default a twentieth of the series, at least 5."""
    size = window or max(5, len(series) // 20)
    means, total = [], 0.0
    for index, value in enumerate(series.values):
        total += value - (series.values[index - size] if index >= size else 0.0)
        means.append(total / min(index + 1, size))
    return Series(steps=series.steps, values=tuple(means))


def thinned(series: Series, limit: int = _MAX_POINTS) -> Series:
    """At most about `limit` points, evenly taken, the last one always."""
    if len(series) <= limit:
        return series
    stride = -(-len(series) // limit)
    indices = list(range(0, len(series), stride))
    if indices[-1] != len(series) - 1:
        indices.append(len(series) - 1)
    return Series(
        steps=tuple(series.steps[index] for index in indices), values=tuple(series.values[index] for index in indices)
    )


def _simple(
    run: RunData, title: str, names: dict[str, tuple[str, str]], *, percent: bool = False, top: float | None = None
) -> go.Figure | None:
    """A figure of plain lines: (label, colour) by metric; None when the run has none of them."""
    found = [(label, color, series) for name, (label, color) in names.items() if (series := _get(run, name))]
    if not found:
        return None
    figure = _figure(title, percent=percent)
    for label, color, series in found:
        _add_line(figure, label, series, color)
    figure.update_yaxes(**({"range": [0, top]} if top is not None else {"rangemode": "tozero"}))
    return figure


def _figure(y_title: str, *, percent: bool = False) -> go.Figure:
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.update_layout(
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 56, "r": 16, "t": 8, "b": 44},
        legend={"orientation": "h", "traceorder": "normal", "x": 0, "y": 1.02, "yanchor": "bottom"},
        hovermode="x unified",
    )
    figure.update_xaxes(title={"text": "optimizer step", "standoff": 8}, zeroline=False)
    figure.update_yaxes(title={"text": y_title, "standoff": 8}, zeroline=False, exponentformat="e")
    if percent:
        figure.update_yaxes(tickformat=_PERCENT)
    return figure


def _add_line(
    figure: go.Figure,
    label: str,
    series: Series,
    color: str,
    *,
    width: float = 2,
    dash: str = "solid",
    markers: bool = False,
    **options: Any,
) -> None:
    import plotly.graph_objects as go

    points = thinned(series)
    figure.add_trace(
        go.Scatter(
            name=label,
            x=list(points.steps),
            y=[float(f"{value:.6g}") for value in points.values],
            mode="lines+markers" if markers or len(points) == 1 else "lines",
            line={"color": color, "width": width, "dash": dash},
            **options,
        )
    )


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
            fillcolor=_alpha(color, 0.18),
            line={"width": 0},
            hoverinfo="skip",
        )
    )


def _get(run: RunData, name: str) -> Series | None:
    series = run.series.get(name)
    return series if series is not None and len(series) else None


def _label(name: str) -> str:
    """A logged name as text of a figure, where Plotly would read tags."""
    return html.escape(name if len(name) <= _LONGEST_LABEL else name[: _LONGEST_LABEL - 1] + "…", quote=False)


def _alpha(color: str, alpha: float) -> str:
    red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"
