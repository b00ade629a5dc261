"""What the sandbox tests share: an interpreter that an ordinary user may run, and a look at processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from composer_rl.errors import SandboxError
from composer_rl.sandboxes.base import EvaluationJob
from composer_rl.sandboxes.process import ProcessSandbox
from tests.sandboxes import attacks

REPOSITORY = Path(__file__).parents[2]
NOBODY = 65_534


def open_or_skip(**settings: object) -> ProcessSandbox:
    """An open sandbox; skips the test with the machine's reason where it cannot isolate."""
    sandbox = ProcessSandbox(**settings)  # type: ignore[arg-type]
    try:
        sandbox.open()
    except SandboxError as error:
        pytest.skip(f"no isolation here: {error}")
    return sandbox


def ordinary_user() -> tuple[str, dict[str, Any]]:
    """A Python and the subprocess settings to run it as a user who is not root; skips where that is impossible."""
    environment = {"PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"}
    settings: dict[str, Any] = {"env": environment, "cwd": "/"}
    if os.geteuid() != 0:
        return sys.executable, settings
    settings |= {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    probe = "import sys, composer_rl.sandboxes.process; assert sys.version_info >= (3, 11)"
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            result = subprocess.run([python, "-c", probe], capture_output=True, timeout=60, check=False, **settings)
        except OSError:
            continue
        if result.returncode == 0:
            return python, settings
    pytest.skip("no Python 3.11 that an ordinary user can run and that sees this repository")


def gold() -> EvaluationJob:
    """A job that passes the test f(0) == 17."""
    return attacks.call(attacks.GOLD)


def passes(sandbox: ProcessSandbox) -> bool:
    """Whether a known-good job still passes."""
    (evaluation,) = sandbox.evaluate([gold()])
    return evaluation.status == "ok" and evaluation.outcomes[0].value == attacks.EXPECTED


def descendants(pid: int) -> set[int]:
    """Process ids of a process and all below it (Linux)."""
    found = {pid}
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return found
    for child in children:
        found |= descendants(int(child))
    return found


def running(pids: set[int]) -> set[int]:
    """Those of the processes that still run (zombies do not)."""
    alive = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            alive.add(pid)
    return alive
