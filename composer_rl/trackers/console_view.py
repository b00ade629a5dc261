"""What the console shows: one state, rendered as a live block, as a plain line, or as the closing summary."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from composer_rl.trackers.summary import error_text, final_metrics

_SPARKS = "▁▂▃▄▅▆▇█"
_WINDOW = 30
"""Steps over which the time a step takes is averaged."""
_FALLBACK = {"loss": "loss", "learning rate": "learning_rate"}
"""Shown by stages that log none of the configured columns."""
_STATUS_STYLES = {"succeeded": "bold green", "stopped": "bold yellow", "interrupted": "bold yellow"}


@dataclass(kw_only=True)
class ProgressState:
    """Newest figures of a run; what the live display reads at each refresh."""

    run_name: str
    columns: dict[str, str]
    """Metric name by the label that it is shown under."""
    total_steps: int | None
    step: int = 0
    latest: dict[str, float] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    history: deque[float] = field(default_factory=lambda: deque(maxlen=16))
    """Latest values of the first column."""
    phase: str = ""
    clock: Callable[[], float] = time.monotonic
    """Seconds; replaced in tests."""
    started: float = field(init=False)
    _marks: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    def __post_init__(self) -> None:
        self.started = self.clock()

    def update(self, metrics: dict[str, float], step: int) -> None:
        """Take new figures; a step number ahead of the last one moves the bar."""
        self.latest.update(metrics)
        for name, value in metrics.items():
            self.first.setdefault(name, value)
        lead = next(iter(self.columns.values()), "")
        if lead in metrics:
            self.history.append(metrics[lead])
        if (
            step > self.step or not self._marks
        ):  # The first mark is no earlier than the first figures: loading is no pace.
            self.step = max(step, self.step)
            self._marks.append((self.clock(), self.step))

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self.clock() - self.started

    @property
    def left_s(self) -> float | None:
        """Seconds that the remaining steps take at the recent pace; None before there is one."""
        if not self.total_steps or len(self._marks) < 2:
            return None
        (t0, s0), (t1, s1) = self._marks[0], self._marks[-1]
        pace_s = (t1 - t0) / (s1 - s0)
        return max(0.0, (self.total_steps - s1) * pace_s - (self.clock() - t1))

    def figures(self) -> list[tuple[str, str]]:
        """Label and formatted value of each column that has been logged."""
        shown = {label: name for label, name in self.columns.items() if name in self.latest} or {
            label: name for label, name in _FALLBACK.items() if name in self.latest
        }
        return [(label, self._figure(name)) for label, name in shown.items()]

    def _figure(self, name: str) -> str:
        value = format_figure(name, self.latest[name])
        before = format_figure(name, self.first[name])
        return f"{before} → {value}" if name.startswith("heldout/") and before != value else value

    def step_text(self) -> str:
        """`64/150`, or `64` when the end is unknown."""
        return f"{self.step}/{self.total_steps}" if self.total_steps else str(self.step)


@dataclass(kw_only=True)
class LiveBlock:
    """Rich renderable: bar and figures. Reads the state anew at each refresh, so that the clock moves."""

    state: ProgressState

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Group(self._bar(options.max_width), *wrap_pieces(self._pieces(), options.max_width))

    def _bar(self, width: int) -> Table | Text:
        state = self.state
        left = state.left_s if state.step != state.total_steps else None
        clocks = f"{format_time(state.elapsed_s)} elapsed" + (f", {format_time(left)} left" if left is not None else "")
        head = f"step {state.step_text()}"
        room = width - len(head) - len(clocks) - 4
        if not state.total_steps or room < 10:
            return Text.assemble((head, "bold"), "  ", (clocks, "cyan"), overflow="ellipsis", no_wrap=True)
        bar = ProgressBar(total=state.total_steps, completed=min(state.step, state.total_steps), width=min(room, 60))
        row = Table.grid(padding=(0, 2))
        row.add_row(Text(head, "bold"), bar, Text(clocks, "cyan"))
        return row

    def _pieces(self) -> list[Text]:
        state = self.state
        pieces = []
        for index, (label, value) in enumerate(state.figures()):
            piece = Text.assemble((label + " ", "dim"), (value, "bold"))
            if index == 0 and len(state.history) > 2:
                piece.append(" " + sparkline(state.history), "green")
            pieces.append(piece)
        if state.phase:
            pieces.append(Text(state.phase + " …", "italic yellow"))
        return pieces


def wrap_pieces(pieces: Iterable[Text], width: int) -> list[Text]:
    """Lay pieces out in lines of at most `width` cells, two spaces apart; a piece is never broken, only cut."""
    lines: list[Text] = []
    for piece in pieces:
        if lines and lines[-1].cell_len + 2 + piece.cell_len <= width:
            lines[-1].append("  ").append_text(piece)
        else:
            lines.append(piece.copy())
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return lines


def plain_line(state: ProgressState) -> str:
    """One line for a log file or a pipe."""
    parts = [f"step {state.step_text()}", *(f"{label} {value}" for label, value in state.figures())]
    parts.append(f"{format_time(state.elapsed_s)} elapsed")
    if state.left_s is not None and state.total_steps and state.step < state.total_steps:
        parts.append(f"{format_time(state.left_s)} left")
    return " | ".join(parts)


def summary_block(state: ProgressState, status: str, summary: dict[str, Any], run_dir: str) -> Group:
    """The closing table: figures before and after, knobs that never acted, where to look."""
    style = _STATUS_STYLES.get(status, "bold red")
    parts: list[Any] = [Text.assemble((f"{status}", style), f"  {state.run_name}, {format_time(state.elapsed_s)}")]
    if text := error_text(summary):
        parts.append(Text(text, "red"))
    parts += [Text(f"warning: {warning}", "yellow") for warning in summary.get("warnings") or []]
    figures = final_metrics({"metrics": summary.get("metrics")})
    if figures:
        parts += ["", _figures_table(figures)]
    if rows := summary.get("engagement"):
        parts += ["", _engagement_table(rows)]
    parts += ["", Text(f"run folder  {run_dir}", overflow="fold")]
    return Group(*parts)


def _figures_table(figures: dict[str, float]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    pairs = [name.removesuffix("_before") for name in figures if name.endswith("_before")]
    pairs = [name for name in pairs if f"{name}_after" in figures]
    table.add_column("metric", overflow="fold")
    if pairs:
        table.add_column("before", justify="right")
    table.add_column("after" if pairs else "value", justify="right")
    for name in pairs:
        before, after = figures[f"{name}_before"], figures[f"{name}_after"]
        table.add_row(escape(name), format_figure(name, before), Text(format_figure(name, after), "bold"))
    in_pairs = {f"{name}_{end}" for name in pairs for end in ("before", "after")}
    for name, value in figures.items():
        if name not in in_pairs and not name.startswith("engagement/"):
            table.add_row(escape(name), *([""] if pairs else []), format_figure(name, value))
    return table


def _engagement_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("knob", "metric"):
        table.add_column(title, overflow="fold")
    table.add_column("value", justify="right")
    table.add_column("", overflow="fold")
    for row in rows:
        value = row.get("value")
        shown = f"{value:.4g}" if isinstance(value, int | float) else str("" if value is None else value)
        note = Text(str(row.get("note") or ("never engaged" if row.get("engaged") is False else "")))
        note.stylize("bold yellow" if row.get("engaged") is False else "dim")
        table.add_row(escape(str(row.get("knob", ""))), escape(str(row.get("metric", ""))), shown, note)
    return table


def sparkline(values: Iterable[float]) -> str:
    """The values as small bars between their least and greatest."""
    known = [value for value in values if value == value]
    if not known:
        return ""
    low, high = min(known), max(known)
    scale = (len(_SPARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_SPARKS[round((value - low) * scale)] for value in known)


def format_figure(name: str, value: float) -> str:
    """A figure as people read it: counts with thousands apart, seconds as time, the rest to three digits."""
    if value != value:
        return "–"
    if name.startswith("time/") and name.endswith("_s"):
        return f"{value:.1f} s"
    if abs(value) >= 1000 or (float(value).is_integer() and abs(value) >= 10):
        return f"{value:,.0f}".replace(",", " ")
    if value != 0 and abs(value) < 0.001:
        return f"{value:.1e}"
    return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) >= 10 else f"{value:.3f}"


def format_time(seconds: float) -> str:
    """`0:07`, `12:34` or `1:02:03`."""
    whole = max(0, round(seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
