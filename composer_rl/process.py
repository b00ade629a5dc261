"""What a run changes in its process, for as long as it lasts: environment, signals, log file."""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from composer_rl.config.redact import redact_text

LOG_NAME = "run.log"

_SIGNALS = ("SIGTERM", "SIGHUP")
_ONE_RUN_ONLY = ("WANDB_RUN_ID", "WANDB_NAME", "WANDB_RESUME", "WANDB_DIR", "WANDB_SWEEP_ID")


class _RedactingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact_text(super().format(record))


class _LogFile(logging.FileHandler):
    """A log file that a full disk cannot turn into an error of the run."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (the name is logging's)
        """Lose the line; the run itself will meet the same disk."""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


class Interrupted(KeyboardInterrupt):
    """A signal asked this process to end; handled like Ctrl-C, with the shell's exit code for that signal."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {signal.Signals(number).name}")
        self.exit_code = 128 + number


def exit_quickly() -> None:
    """Spare Python its search for garbage when the process ends: with torch loaded it takes about 2 s."""
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


@contextmanager
def environment_restored(in_sweep: bool) -> Iterator[None]:
    """Put the environment back as it was before the job.

    In a sweep, variables that name one run are taken out first: they would send every job's figures to that run.
    """
    before = dict(os.environ)
    if in_sweep:
        for name in _ONE_RUN_ONLY:
            os.environ.pop(name, None)
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def signals_raised() -> Iterator[None]:
    """Raise Interrupted on SIGTERM and SIGHUP, so that a killed run still writes its result.

    Only the main thread can set handlers; elsewhere the process keeps its own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(number)

    numbers = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def run_log(run_dir: Path) -> Iterator[None]:
    """Copy log records of INFO and above to run.log, and warnings to the terminal."""
    root = logging.getLogger()
    to_file = _LogFile(run_dir / LOG_NAME, encoding="utf-8")
    to_file.setLevel(logging.INFO)
    to_file.setFormatter(_RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    to_terminal = logging.StreamHandler()
    to_terminal.setLevel(logging.WARNING)
    to_terminal.setFormatter(_RedactingFormatter("%(levelname)s: %(message)s"))
    level = root.level
    root.setLevel(min(level, logging.INFO) if level else logging.INFO)
    for handler in (to_file, to_terminal):
        root.addHandler(handler)
    try:
        yield
    finally:
        for handler in (to_file, to_terminal):
            root.removeHandler(handler)
            handler.close()
        root.setLevel(level)


@contextmanager
def hydra_messages() -> Iterator[None]:
    """Print what Hydra says about the jobs of a sweep on stdout, as plain lines."""
    logger = logging.getLogger("hydra")
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_RedactingFormatter("%(message)s"))
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before
