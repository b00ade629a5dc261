"""Plotly figures of a sweep. Each builder answers None when no arm has what it shows.

Every trace says in its `meta` to which arm it belongs and, where it is about one seed, to which; `seeds` has the seed
of each of its points. A trace over all seeds has `all_seeds`: a page that shows some seeds only leaves it out instead
of showing a mean of others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from composer_rl.report.collect import Series
from composer_rl.report.drawing import (
    BLUE,
    GOLD,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    TEAL,
    base_figure,
    label_text,
    running_mean,
    with_alpha,
)
from composer_rl.report.statistics import bootstrap_band
from composer_rl.report.sweep.comparison import ArmResult, Comparison

if TYPE_CHECKING:
    import plotly.graph_objects as go

_COLORS = (BLUE, ORANGE, GREEN, PURPLE, RED, GOLD, TEAL)
_DASHES = ("solid", "dash", "dot", "dashdot")
_MAX_STEPS = 240
"""Steps at which curves of a sweep are drawn: every seed of every arm has a line."""
_ROW_PX = 46
"""Height of one arm in figures that have a row for each."""


def color_of(result: ArmResult) -> str:
    """The baseline is grey; the arms take the palette in turn."""
    return GREY if result.index == 0 else _COLORS[(result.index - 1) % len(_COLORS)]


def dash_of(result: ArmResult) -> str:
    """Solid for the baseline and the first arms; another dash for each further turn of the palette."""
    return _DASHES[max(0, result.index - 1) // len(_COLORS) % len(_DASHES)]


def curves_figure(
    comparison: Comparison, metric: str, y_title: str, *, is_rate: bool = False, smooth: bool = False
) -> go.Figure | None:
    """Mean over seeds of a logged metric with its bootstrap band for every arm, and each seed's own curve.

    Args:
        comparison: The arms.
        metric: As logged.
        y_title: Axis title.
        is_rate: The metric is a share: its axis goes from 0 to 1.
        smooth: Draw running means of each seed's curve.
    """
    import plotly.graph_objects as go

    figure = base_figure(y_title)
    for result in comparison.results:
        curves = _curves(result, metric, smooth)
        if curves:
            figure.add_traces(_curve_traces(result, curves))
    if not figure.data:
        return None
    if is_rate:
        figure.update_yaxes(range=[0, 1])
    assert isinstance(figure, go.Figure)
    return figure


def finals_figure(comparison: Comparison) -> go.Figure | None:
    """The objective by arm: a dot a seed, and the interquartile mean with its interval."""
    import plotly.graph_objects as go

    shown = [result for result in comparison.results if result.scores]
    if not shown:
        return None
    figure = _rows_figure(shown, comparison.objective.metric)
    _widen(figure, [score for result in shown for score in result.scores.values()])
    for row, result in enumerate(shown):
        color, seeds = color_of(result), list(result.scores)
        values = list(result.scores.values())
        figure.add_trace(_dots(result, row, seeds, values))
        if result.middle is None or len(values) < 2:
            continue
        figure.add_trace(
            go.Scatter(
                name="interquartile mean",
                x=[result.middle.value],
                y=[row + 0.14],
                mode="markers",
                marker={"symbol": "diamond", "size": 10, "color": color},
                error_x=_error_bar(result.middle.value, result.middle.low, result.middle.high, color),
                meta={"arm": result.index, "all_seeds": True},
                opacity=0.5 if result.is_void else 1.0,
                hovertemplate=f"%{{x:.3f}}<br>{result.middle.low:.3f} to {result.middle.high:.3f}"
                "<extra>interquartile mean</extra>",
            )
        )
    return figure


def differences_figure(comparison: Comparison) -> go.Figure | None:
    """Arm minus baseline: a dot a seed, and the mean with the interval of its verdict. Void arms are left out."""
    import plotly.graph_objects as go

    base = comparison.baseline
    shown = [
        result
        for result in comparison.results[1:]
        if not result.is_void and result.verdict is not None and result.scores.keys() & base.scores.keys()
    ]
    if not shown:
        return None
    figure = _rows_figure(shown, "arm − baseline")
    figure.add_vline(x=0, line={"color": GREY, "width": 1, "dash": "dot"})
    if not any(
        result.verdict and result.verdict.difference and result.verdict.difference.has_interval for result in shown
    ):
        _widen(
            figure,
            [
                score - base.scores[seed]
                for result in shown
                for seed, score in result.scores.items()
                if seed in base.scores
            ],
        )
    for row, result in enumerate(shown):
        seeds = sorted(result.scores.keys() & base.scores.keys())
        figure.add_trace(_dots(result, row, seeds, [result.scores[seed] - base.scores[seed] for seed in seeds]))
        difference = result.verdict.difference if result.verdict is not None else None
        if difference is None or not difference.has_interval:
            continue
        level = f"{100 * difference.confidence:.4g}%"
        figure.add_trace(
            go.Scatter(
                name="mean",
                x=[difference.mean],
                y=[row + 0.14],
                mode="markers",
                marker={"symbol": "diamond", "size": 10, "color": color_of(result)},
                error_x=_error_bar(difference.mean, difference.low, difference.high, color_of(result)),
                meta={"arm": result.index, "all_seeds": True},
                hovertemplate=f"%{{x:+.3g}}<br>{level} interval {difference.low:+.3g} to {difference.high:+.3g}"
                "<extra>mean difference</extra>",
            )
        )
    return figure


def heatmap_figure(comparison: Comparison) -> go.Figure | None:
    """Mean objective by the values of two swept settings; None unless exactly two were swept on a grid."""
    import plotly.graph_objects as go

    if len(comparison.knobs) != 2:
        return None
    across, down = comparison.knobs
    columns = _values(comparison, across)
    rows = _values(comparison, down)
    cells: dict[tuple[str, str], ArmResult] = {}
    for result in comparison.results:
        place = (result.arm.choice.get(down, ""), result.arm.choice.get(across, ""))
        if place in cells:
            return None
        cells[place] = result
    if len(columns) < 2 or len(rows) < 2 or len(cells) <= max(len(columns), len(rows)):
        return None
    found = [[cells.get((row, column)) for column in columns] for row in rows]
    figure = base_figure(down)
    figure.add_trace(
        go.Heatmap(
            x=[label_text(column) for column in columns],
            y=[label_text(row) for row in rows],
            z=[[None if cell is None else cell.mean for cell in line] for line in found],
            text=[[_cell_text(cell) for cell in line] for line in found],
            texttemplate="%{text}",
            colorscale=[[0, "#dbe9f8"], [0.5, "#7fb0e6"], [1, "#1f5fae"]],
            reversescale=comparison.objective.minimize,
            xgap=2,
            ygap=2,
            hovertemplate=f"{label_text(down)} %{{y}}<br>{label_text(across)} %{{x}}<br>%{{text}}<extra></extra>",
            colorbar={"title": {"text": ""}, "thickness": 12},
        )
    )
    figure.update_layout(hovermode="closest", margin={"l": 72})
    figure.update_xaxes(type="category", title={"text": across}, showgrid=False)
    figure.update_yaxes(type="category", showgrid=False)
    return figure


def _curves(result: ArmResult, metric: str, smooth: bool) -> dict[int, Series]:
    found = {}
    for seed, job in result.arm.by_seed.items():
        series = job.run.series.get(metric) if job.run is not None else None
        if series is not None and len(series):
            found[seed] = running_mean(series) if smooth else series
    return found


def _curve_traces(result: ArmResult, curves: Mapping[int, Series]) -> list[Any]:
    import plotly.graph_objects as go

    steps = sorted({step for series in curves.values() for step in series.steps})
    stride = -(-len(steps) // _MAX_STEPS)
    steps = sorted({*steps[::stride], *steps[-1:]})
    aligned = {}
    for seed, series in curves.items():
        logged = dict(zip(series.steps, series.values, strict=True))
        aligned[seed] = [logged.get(step, math.nan) for step in steps]
    band = bootstrap_band(list(aligned.values()))
    color, dash = color_of(result), "dot" if result.is_void else dash_of(result)
    name = _label(result)
    meta = {"arm": result.index}
    traces: list[Any] = []
    inside = [at for at, low in enumerate(band.low) if math.isfinite(low)]
    if len(inside) > 1:
        bounded = [steps[at] for at in inside]
        traces.append(
            go.Scatter(
                name=f"{name}, 95% band",
                x=[*bounded, *reversed(bounded)],
                y=_rounded([*(band.high[at] for at in inside), *(band.low[at] for at in reversed(inside))]),
                mode="lines",
                fill="toself",
                fillcolor=with_alpha(color, 0.14),
                line={"width": 0},
                hoverinfo="skip",
                showlegend=False,
                meta={**meta, "all_seeds": True},
            )
        )
    for seed, values in aligned.items():
        points = [(step, value) for step, value in zip(steps, values, strict=True) if math.isfinite(value)]
        traces.append(
            go.Scatter(
                name=f"{name}, seed {seed}",
                x=[step for step, _ in points],
                y=_rounded([value for _, value in points]),
                mode="lines" if len(points) > 1 else "markers",
                line={"color": color, "width": 1, "dash": dash},
                opacity=0.5,
                visible=False,
                showlegend=False,
                meta={**meta, "seed": seed},
            )
        )
    traces.append(
        go.Scatter(
            name=name,
            x=steps,
            y=_rounded(band.mean),
            mode="lines" if len(steps) > 1 else "markers",
            line={"color": color, "width": 2.5, "dash": dash},
            meta={**meta, "all_seeds": True},
        )
    )
    return traces


def _rows_figure(results: Sequence[ArmResult], x_title: str) -> go.Figure:
    figure = base_figure("")
    figure.update_layout(
        hovermode="closest", showlegend=False, height=96 + _ROW_PX * len(results), margin={"l": 24, "r": 24}
    )
    figure.update_xaxes(title={"text": x_title}, nticks=6, tickangle=0)
    figure.update_yaxes(
        tickvals=list(range(len(results))),
        ticktext=[_label(result) for result in results],
        range=[len(results) - 0.45, -0.55],
    )
    return figure


def _widen(figure: go.Figure, values: Sequence[float]) -> None:
    """Room around values that are all the same, where plotly would show an axis from -1 to 1."""
    if max(values) - min(values) < 1e-9:
        room = max(0.05, 0.05 * abs(values[0]))
        figure.update_xaxes(range=[values[0] - room, values[0] + room])


def _dots(result: ArmResult, row: int, seeds: Sequence[int], values: Sequence[float]) -> Any:
    import plotly.graph_objects as go

    return go.Scatter(
        name=label_text(result.short_label),
        x=_rounded(values),
        y=[row - 0.14] * len(values),
        customdata=list(seeds),
        mode="markers",
        marker={
            "size": 9,
            "color": with_alpha(color_of(result), 0.55),
            "line": {"color": color_of(result), "width": 1},
            "symbol": "circle-open" if result.is_void else "circle",
        },
        meta={"arm": result.index, "seeds": list(seeds)},
        hovertemplate="%{x:.4g}<extra>seed %{customdata}</extra>",
    )


def _error_bar(value: float, low: float, high: float, color: str) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value],
        "arrayminus": [value - low],
        "color": color,
        "thickness": 2,
        "width": 5,
    }


def _values(comparison: Comparison, knob: str) -> list[str]:
    """Values of a swept setting, numbers in their order and other words as they come."""
    found = list(dict.fromkeys(result.arm.choice.get(knob, "") for result in comparison.results))
    try:
        return sorted(found, key=float)
    except ValueError:
        return found


def _cell_text(cell: ArmResult | None) -> str:
    if cell is None or cell.mean is None:
        return ""
    if cell.is_void:
        return "void"
    return f"{cell.mean:.3f} (n={len(cell.scores)})"


def _label(result: ArmResult) -> str:
    return label_text(result.short_label) + (" (void)" if result.is_void else "")


def _rounded(values: Sequence[float]) -> list[float | None]:
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values]
