"""Rules for the whole suite."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Generator
from typing import Any

import pytest

NO_SKIPS = "COMPOSER_RL_NO_SKIPS"
"""Set to 1 where every outside program is installed (.ci/run): a test that skips because it needs one fails; one that
needs a GPU still skips."""


def pytest_configure(config: pytest.Config) -> None:
    """Give every worker of `pytest -n` cores of its own, which the programs that its tests start inherit.

    Two runs of two threads on two cores wait for each other at every kernel; the runtime counts the cores it may use.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Started in the background of a script: the programs that tests interrupt would inherit the deaf ear.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    number, count = int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    own = cores[number::count] or [cores[number % len(cores)]]
    os.sched_setaffinity(0, own)
    os.environ["OMP_NUM_THREADS"] = str(len(own))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked `gpu` where torch sees no GPU."""
    if item.get_closest_marker("gpu") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no GPU here")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Turn a skip for a missing program ("needs ...") into a failure when COMPOSER_RL_NO_SKIPS=1."""
    report = yield
    if report.skipped and os.environ.get(NO_SKIPS) == "1" and isinstance(report.longrepr, tuple):
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        if reason.startswith("needs ") and not re.search("cuda|gpu", reason, re.IGNORECASE):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped, which {NO_SKIPS}=1 forbids: {reason}"
    return report
