"""Progress for the person at the terminal: a block that updates in place, or plain lines where there is none."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TextIO

from composer_rl.trackers.base import RunInfo, Tracker

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from composer_rl.trackers.console_view import ProgressState


def _default_columns() -> dict[str, str]:
    return {
        "reward": "reward",
        "held-out solved": "heldout/solve_rate",
        "held-out reward": "heldout/reward",
        "entropy": "entropy",
        "clipped": "clip_ratio/region_mean",
        "tokens/s": "tokens_per_s",
    }


@dataclass(kw_only=True)
class ConsoleTracker(Tracker):
    """Shows step, figures and time left while the run goes on, and a summary when it ends."""

    mode: Literal["auto", "live", "plain", "off"] = "auto"
    """`live`: updates in place; `plain`: a line every `plain_every_s`; `auto`: live in a terminal, plain in a pipe, a
    log file or a dumb terminal; `off`: nothing at all."""
    plain_every_s: float = 5.0
    """Shortest time between two plain lines in seconds, at least 0; new held-out figures are always shown."""
    refresh_per_s: float = 2.0
    """Refreshes of the live block a second, in (0, 30]."""
    columns: dict[str, str] = field(default_factory=_default_columns)
    """Metric shown under each label, in order; what a stage does not log is left out. The first gets a sparkline."""
    show_summary: bool = True
    """Print the final figures and the engagement table at the end."""

    def __post_init__(self) -> None:
        self._console: Console | None = None
        self._live: Live | None = None
        self._state: ProgressState | None = None
        self._moved_handlers: list[tuple[logging.StreamHandler[Any], Any]] = []
        self._last_line_s: float | None = None
        self._run_dir = ""
        if self.mode not in ("auto", "live", "plain", "off"):
            raise ValueError(f"mode must be auto, live, plain or off, got {self.mode!r}")
        if not self.plain_every_s >= 0:
            raise ValueError(f"plain_every_s must be at least 0, got {self.plain_every_s}")
        if not 0 < self.refresh_per_s <= 30:
            raise ValueError(f"refresh_per_s must be in (0, 30], got {self.refresh_per_s}")

    def start(self, info: RunInfo) -> None:
        """Show the first state."""
        if self.mode == "off":
            return
        from rich.console import Console

        from composer_rl.trackers.console_view import LiveBlock, ProgressState

        self._run_dir = str(info.run_dir)
        self._state = ProgressState(
            run_name=info.run_name,
            columns=dict(self.columns),
            total_steps=info.total_steps,
            step=info.resume_step or 0,
        )
        console = Console(highlight=False, force_terminal=True if self.mode == "live" else None)
        self._console = console
        in_place = console.is_terminal and not console.is_dumb_terminal
        if self.mode == "live" or (self.mode == "auto" and in_place):
            from rich.live import Live

            self._live = Live(
                LiveBlock(state=self._state), console=console, refresh_per_second=self.refresh_per_s, transient=True
            )
            originals = {id(stream) for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)}
            self._live.start()
            self._move_handlers(originals)

    def log(self, metrics: dict[str, float], *, step: int) -> None:
        """Take the newest figures; in plain mode print a line when one is due."""
        if self._state is None:
            return
        self._state.update(metrics, step)
        if self._live is None:
            news = any(name.startswith("heldout/") for name in metrics)
            self._print_line(news or step == self._state.total_steps)

    def phase(self, text: str) -> None:
        """Show what the run is doing beside its training steps."""
        if self._state is None or text == self._state.phase:
            return
        self._state.phase = text
        if self._live is not None:
            self._live.refresh()
        elif text and self._console is not None:
            self._console.print(f"{text} …", markup=False)

    def finish(self, status: str, summary: dict[str, Any]) -> None:
        """Give the terminal back and print the summary; nothing of a run that could not even start."""
        state, self._state = self._state, None
        live, self._live = self._live, None
        console, self._console = self._console, None
        if state is None or console is None:
            return
        from composer_rl.trackers.console_view import LiveBlock, summary_block

        state.phase = ""
        if live is not None:
            proxies = (sys.stdout, sys.stderr)
            try:
                live.stop()
            finally:
                self._restore_handlers({id(proxies[0]): sys.stdout, id(proxies[1]): sys.stderr})
            if summary:
                console.print(LiveBlock(state=state))
        if self.show_summary and summary:
            console.print(summary_block(state, status, summary, self._run_dir))

    def _print_line(self, due: bool) -> None:
        from composer_rl.trackers.console_view import plain_line

        now = time.monotonic()
        if self._state is None or self._console is None:
            return
        if due or self._last_line_s is None or now - self._last_line_s >= self.plain_every_s:
            self._last_line_s = now
            self._console.print(plain_line(self._state), markup=False, soft_wrap=True)

    def _move_handlers(self, originals: set[int]) -> None:
        """Send log records above the live block.

        The live display replaces sys.stdout and sys.stderr, but a logging handler made before keeps the stream it
        was given and would write through the block.
        """
        for handler in _stream_handlers():
            if id(handler.stream) in originals:
                self._moved_handlers.append((handler, handler.stream))
                handler.setStream(sys.stderr)

    def _restore_handlers(self, replaced: dict[int, TextIO]) -> None:
        """Give handlers their streams back; `replaced` is for those made meanwhile, by an import for instance."""
        moved, self._moved_handlers = self._moved_handlers, []
        for handler, stream in moved:
            handler.setStream(stream)
        for handler in _stream_handlers():
            if (stream := replaced.get(id(handler.stream))) is not None:
                handler.setStream(stream)


def _stream_handlers() -> list[logging.StreamHandler[Any]]:
    """Every handler of every logger that writes to a stream."""
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    return [
        handler
        for logger in loggers
        for handler in getattr(logger, "handlers", ())  # Placeholders of the hierarchy have none.
        if isinstance(handler, logging.StreamHandler)
    ]
