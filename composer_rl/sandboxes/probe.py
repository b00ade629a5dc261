"""Attempts at what a sandbox must prevent, run inside it before a run may trust it."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from types import TracebackType

from composer_rl.sandboxes.base import Call, Evaluation, EvaluationJob, Limits

_SOURCE = """
import os

def attempt(action):
    try:
        action()
    except BaseException:
        return False
    return True

def add(a, b):
    return a + b

def reads(path):
    def action():
        with open(path, "rb") as file:
            file.read(1)
    return attempt(action)

def writes(path):
    def action():
        with open(path, "ab") as file:
            file.write(b"x")
    return attempt(action)

def signals(pid):
    return attempt(lambda: os.kill(pid, 0))

def connects():
    import _socket
    return attempt(lambda: _socket.socket())

def forks():
    try:
        pid = os.fork()
    except OSError:
        return False
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True

def keeps_environment():
    return sorted(os.environ)

def has_scratch():
    return writes("probe.txt")
"""


_NUM_GOOD = 3
_FORBIDDEN = (
    "open a network socket",
    "signal the training process",
    "read the training process's environment",
    "write this user's files",
    "read this user's files",
    "leave files in folders that everybody may write to",
    "start processes",
)


@dataclass
class Probe:
    """One run of the attempts; a context manager, because it needs files that the candidate tries to touch."""

    limits: Limits

    def __enter__(self) -> Probe:
        self._folder = tempfile.TemporaryDirectory(prefix="composer-rl-probe-")
        os.chmod(self._folder.name, 0o711)
        self._secret = os.path.join(self._folder.name, "secret")
        with open(self._secret, "w", encoding="ascii") as file:
            file.write("secret")
        os.chmod(self._secret, 0o600)
        shared = os.path.join(self._folder.name, "shared")
        os.mkdir(shared)
        os.chmod(shared, 0o777)  # stands for /tmp and its like
        self._left = os.path.join(shared, "left")
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def job(self) -> EvaluationJob:
        """The attempts as a job."""
        pid = os.getpid()
        calls = [
            Call(function="add", args=(40, 2)),
            Call(function="keeps_environment"),
            Call(function="has_scratch"),
            Call(function="connects"),
            Call(function="signals", args=(pid,)),
            Call(function="reads", args=(f"/proc/{pid}/environ",)),
            Call(function="writes", args=(self._secret,)),
            Call(function="reads", args=(self._secret,)),
            Call(function="writes", args=(self._left,)),
        ]
        if self.limits.max_processes == 0:
            calls.append(Call(function="forks"))
        return EvaluationJob(source=_SOURCE, calls=tuple(calls))

    def broken(self, evaluation: Evaluation) -> str | None:
        """What shows that the sandbox does not even run good code; None when it does."""
        outcomes = evaluation.outcomes
        if evaluation.status != "ok":
            last = outcomes[-1]
            return f"a known-good job ended with status {evaluation.status!r} ({last.error_message})"
        for outcome, expected in zip(outcomes, (42, [], True), strict=False):
            if not outcome.ok or outcome.value != expected:
                return f"a known-good job gave {outcome!r} instead of {expected!r}"
        return None

    def leaks(self, evaluation: Evaluation) -> list[str]:
        """What the candidate could do and must not, in words."""
        results = evaluation.outcomes[_NUM_GOOD:]
        allowed = [not result.ok or result.value is not False for result in results]
        return [name for name, could in zip(_FORBIDDEN, allowed, strict=False) if could]
