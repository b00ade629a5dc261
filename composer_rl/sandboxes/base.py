"""The seam between environments and whatever runs model-written code.

A sandbox evaluates calls of candidate code and returns plain values. It never sees an expected value, so code
under test has nothing to forge: the verdict is computed by the caller (`envs/grading.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

EvaluationStatus = Literal["ok", "timeout", "memory", "output_limit", "crashed"]
"""`ok`: every call was attempted and answered. Otherwise what ended the process; calls without an answer failed."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call to make in the candidate module."""

    function: str
    """Name looked up in the module's globals."""
    args: tuple[Any, ...] = ()
    """JSON values: None, bool, int, float, str, list, dict with str keys."""


@dataclass(frozen=True, kw_only=True)
class CallOutcome:
    """What one call gave."""

    ok: bool
    """True when the call returned a JSON value of exact built-in types."""
    value: Any = None
    """The returned value when `ok`."""
    error_type: str = ""
    """Class name of the exception (for instance "NameError"), "NotJson" for an unserialisable value, "NoAnswer"
    when the process ended before answering."""
    error_message: str = ""
    """At most 200 characters of the exception's text."""


@dataclass(frozen=True, kw_only=True)
class EvaluationJob:
    """One candidate module and the calls to make in it, in one fresh process."""

    source: str
    """Python source of the module."""
    calls: tuple[Call, ...]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The answer to an EvaluationJob; `outcomes` has one entry a call, in order."""

    status: EvaluationStatus
    outcomes: tuple[CallOutcome, ...]
    output: str = ""
    """Head and tail of what the code printed, within the output limit."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Resource ceilings of one evaluation; the candidate cannot raise them. ValueError when one is out of range."""

    wall_s: float = 2.0
    """Seconds of wall-clock time, range (0, 3600]."""
    cpu_s: float = 1.0
    """Seconds of CPU time, range (0, 3600]."""
    memory_mb: int = 256
    """Address space in MiB, at least 32."""
    output_bytes: int = 16_384
    """Bytes of stdout and stderr kept (head and tail), at least 256."""
    answer_bytes: int = 1_048_576
    """Bytes that the JSON of all returned values together may take, at least 1024."""
    max_processes: int = 0
    """Processes the candidate may start; 0 forbids fork and exec."""
    max_threads: int = 16
    """Threads the candidate may start besides its first."""
    file_mb: int = 1
    """Size of a file it may write, in MiB, at least 0."""
    scratch_mb: int = 8
    """Size of its scratch folder in MiB, at least 1; enforced where the folder can be mounted."""

    def __post_init__(self) -> None:
        for name in ("wall_s", "cpu_s"):
            value = getattr(self, name)
            if not 0 < value <= 3600:
                raise ValueError(f"limits.{name} must be above 0 and at most 3600 seconds, got {value!r}")
        minima = {"memory_mb": 32, "output_bytes": 256, "answer_bytes": 1024, "scratch_mb": 1}
        for name in ("max_processes", "max_threads", "file_mb"):
            minima[name] = 0
        for name, minimum in minima.items():
            value = getattr(self, name)
            if value < minimum:
                raise ValueError(f"limits.{name} must be at least {minimum}, got {value!r}")


@dataclass(kw_only=True)
class Sandbox(ABC):
    """Base of all sandboxes. Use as a context manager, or call `open` and `close`."""

    limits: Limits = field(default_factory=Limits)
    """Ceilings of every evaluation."""
    allow_weak: bool = False
    """Run even where this machine cannot isolate the code; said at every start."""

    @abstractmethod
    def open(self) -> None:
        """Start worker processes. Raises SandboxError when the isolation asked for is not available."""

    @property
    def in_force(self) -> str:
        """The isolation that `open` found to work, in words, for reports; empty before."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """End every process that this sandbox started. Idempotent."""

    @abstractmethod
    def evaluate(self, jobs: Sequence[EvaluationJob]) -> list[Evaluation]:
        """Run each job in a fresh process, several at once, and return the answers in order.

        A misbehaving job yields a status, never an exception; SandboxError only if the sandbox itself broke.
        """

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()
