"""What every figure is drawn with.

Colours are mid-tones that keep a contrast of at least 3:1 on white and on near-black, so one figure serves a light and
a dark page; text and grid colours are the page's.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from composer_rl.report.collect import Series

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
PERCENT = ".2~%"
"""d3 format: two significant digits, no trailing zeros (0.5%, 60%)."""
MAX_POINTS = 1500
"""Points of a line that a page holds."""
LONGEST_LABEL = 28
"""Characters of a name in a figure."""


def base_figure(y_title: str, *, percent: bool = False) -> go.Figure:
    """An empty figure over optimizer steps in the look of all pages; the page sets text and grid colours."""
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
        figure.update_yaxes(tickformat=PERCENT)
    return figure


def add_line(
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
    """Add a line through the finite points of a series; `options` are of plotly's Scatter."""
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


def running_mean(series: Series, window: int | None = None) -> Series:
    """Mean of the last `window` values at each step; by default a twentieth of the series, at least 5."""
    size = window or max(5, len(series) // 20)
    means, total = [], 0.0
    for index, value in enumerate(series.values):
        total += value - (series.values[index - size] if index >= size else 0.0)
        means.append(total / min(index + 1, size))
    return Series(steps=series.steps, values=tuple(means))


def thinned(series: Series, limit: int = MAX_POINTS) -> Series:
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


def label_text(name: str) -> str:
    """A logged name as text of a figure, where Plotly would read tags."""
    return html.escape(name if len(name) <= LONGEST_LABEL else name[: LONGEST_LABEL - 1] + "…", quote=False)


def with_alpha(color: str, alpha: float) -> str:
    """A "#rrggbb" colour with an opacity in [0, 1]."""
    red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"
