"""Model-written code in forked processes of this machine: a fresh fork of a torch-free template per evaluation."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from composer_rl.errors import SandboxError
from composer_rl.sandboxes.base import Evaluation, EvaluationJob, Sandbox
from composer_rl.sandboxes.batch import Batch
from composer_rl.sandboxes.probe import Probe
from composer_rl.sandboxes.worker import NotAvailableError, TemplateWorker

_LOG = logging.getLogger(__name__)
_STRICT_MODES = ("namespaces", "setuid", "landlock")
_FIRST_UID = 60_600
_NUM_UIDS = 500
_MAX_WORKERS = 256


@dataclass(kw_only=True)
class ProcessSandbox(Sandbox):
    """Evaluates code on this machine, each job in a fresh fork that has no privileges.

    `open` starts template processes: bare interpreters with the standard library alone, an empty environment and a
    fixed hash seed. For every job a template forks a child that gives up its privileges, runs the code, writes what
    the calls returned to a pipe and is killed. Expected values are never in any of these processes.

    What holds a candidate, in the strongest of these that works here (`isolation=auto`, proved by a probe at open):

    - `namespaces` (root, or a user who may create user namespaces): no other process, network, or IPC object can be
      named; the root folder is read-only and holds the standard library, shared libraries and five devices; the
      scratch folder is a bounded mount that vanishes with the job; a root's child is an unprivileged user.
    - `setuid` (root without those rights, as in many containers): the child is an unprivileged user, and Landlock
      limits it to the standard library and its scratch folder.
    - `landlock` (an ordinary user without user namespaces): the same user's process, limited by Landlock.

    In all three a seccomp filter refuses sockets, new processes, programs, signals to others, ptrace and whatever a
    module has no use for, and rlimits bound CPU time, address space, file size, descriptors and threads. Wall-clock
    and CPU time are enforced by the template. The parent replaces a template that dies or goes silent.

    A template serves one job at a time and has the next one waiting; `num_workers` of them work side by side.

    What it does not hold:

    - A hole in the kernel itself, which all children share. Really hostile code belongs in a virtual machine.
    - The time of other processes: cores and caches are shared, and a job that uses its CPU time up costs that time.
    - Under `setuid` and `landlock`: the names of files (Landlock hides contents, not existence), and the sum of the
      files a job writes until it ends (each one is bounded, and CPU time bounds their number).
    - Under `setuid`, when other users cannot read the interpreter's library (a Python in root's home), imports
      beyond a list of common modules fail. Kernels before 5.14 count an ordinary user's threads all together, so
      that a candidate's may fail to start.
    - The candidate's own answers: it shares its interpreter with the harness that calls it, so it can spoil them,
      and it can see the arguments of its later calls. It cannot see an expected value or another job's data.
    - With `allow_weak` on a machine that has none of this (macOS, Landlock or seccomp missing): only what the warning
      at open does not list; on macOS that is rlimits and time limits.
    """

    num_workers: int | None = None
    """Template processes, which is how many jobs run at once, range [1, 256]; None takes the number of usable cores."""
    isolation: Literal["auto", "namespaces", "setuid", "landlock", "none"] = "auto"
    """How candidates are kept apart from the machine; auto takes the strongest that works, in this order. `none`
    needs allow_weak."""
    job_bytes: int = 2_097_152
    """Largest job (source and arguments as JSON), at least 4096; a larger one is answered without being run."""
    grace_s: float = 10.0
    """Seconds beyond the wall limit after which a silent template is replaced, range (0, 3600]."""

    def __post_init__(self) -> None:
        if self.num_workers is not None and not 1 <= self.num_workers <= _MAX_WORKERS:
            raise ValueError(f"num_workers must be None or in [1, {_MAX_WORKERS}], got {self.num_workers!r}")
        if self.isolation not in ("auto", *_STRICT_MODES, "none"):
            raise ValueError(f"isolation must be one of auto, {', '.join(_STRICT_MODES)}, none; got {self.isolation!r}")
        if self.isolation == "none" and not self.allow_weak:
            raise ValueError("isolation must not be 'none' unless allow_weak is true, got allow_weak=False")
        if self.job_bytes < 4096:
            raise ValueError(f"job_bytes must be at least 4096, got {self.job_bytes!r}")
        if not 0 < self.grace_s <= 3600:
            raise ValueError(f"grace_s must be above 0 and at most 3600 seconds, got {self.grace_s!r}")
        self._lock = threading.Lock()
        self._workers: list[TemplateWorker] = []
        self._mode = ""
        self._in_force = ""
        self._owner = 0
        self._finalizer: weakref.finalize[[list[TemplateWorker], int], ProcessSandbox] | None = None
        self._num_started = 0

    @property
    def in_force(self) -> str:
        """The isolation that `open` found to work, in words; empty before."""
        return self._in_force

    def open(self) -> None:
        """Start the template processes and prove on the first one that candidates are confined. Idempotent.

        Raises SandboxError when this machine cannot isolate the code (naming what is missing; with allow_weak it
        warns instead) or when the template does not come up.
        """
        if self._owner not in (0, os.getpid()):  # a forked copy: workers and lock are the other process's
            for worker in self._workers:
                worker.disown()
            self._workers = []
            self._lock = threading.Lock()
            self._owner = 0
        with self._lock:
            if self._owner:
                return
            self._owner = os.getpid()
            self._finalizer = weakref.finalize(self, _end, self._workers, self._owner)
            try:
                self._workers.append(self._open_first())
                self._in_force = self._workers[0].in_force
                self._restock()
            except BaseException:
                self._close()
                raise
        _LOG.debug("sandbox open: %d workers, %s", len(self._workers), self.in_force)

    def close(self) -> None:
        """End every process that this sandbox started. Idempotent; waits for a batch in progress."""
        if self._owner == os.getpid():
            with self._lock:
                self._close()

    def _close(self) -> None:
        _end(self._workers, os.getpid())
        if self._finalizer is not None:
            self._finalizer.detach()
        self._owner = 0

    def evaluate(self, jobs: Sequence[EvaluationJob]) -> list[Evaluation]:
        """Run each job in a fresh process, `num_workers` at once, and return the answers in order.

        Safe to call from several threads, which then take turns. Raises ValueError for arguments that are not JSON
        and SandboxError when the sandbox is closed or itself failed twice on the same job.
        """
        if self._owner != os.getpid():
            where = "was opened in another process; call open() in this one" if self._owner else "is not open"
            raise SandboxError(f"the sandbox {where}")
        with self._lock:
            if self._owner != os.getpid():
                raise SandboxError("the sandbox was closed while this call waited")
            try:
                self._restock()
                return Batch(self._workers, self._start, jobs, self.limits, self.job_bytes).run()
            except BaseException:
                self._drop_busy()
                raise

    def _open_first(self) -> TemplateWorker:
        """The first worker, in the strongest mode that starts and withstands the probe."""
        if self.isolation == "none":
            return self._open_weak("none", "isolation=none was asked for")
        modes = _STRICT_MODES if self.isolation == "auto" else (self.isolation,)
        missing: list[str] = []
        leaky: list[str] = []
        for mode in modes:
            try:
                worker, leaks = self._try(mode)
            except NotAvailableError as error:
                missing.append(f"{mode}: {error}")
                continue
            if not leaks:
                return worker
            worker.kill()
            leaky.append(mode)
            missing.append(f"{mode}: candidate code could {', '.join(leaks)}")
        reasons = "; ".join(missing)
        if not self.allow_weak:
            raise SandboxError(
                f"this machine cannot isolate model-written code ({reasons}); set sandbox.allow_weak=true to run it "
                "with whatever limits there are"
            )
        return self._open_weak(leaky[0] if leaky else "none", reasons)

    def _open_weak(self, mode: str, reasons: str) -> TemplateWorker:
        """The best that is left when nothing isolates; warns every time."""
        try:
            worker, leaks = self._try(mode)
        except NotAvailableError as error:
            raise SandboxError(f"the sandbox does not work even without isolation: {error}; {reasons}") from error
        _LOG.warning(
            "sandbox.allow_weak=true: model-written code is NOT isolated from this machine; it can %s (%s)",
            ", ".join(leaks) or "do what the probe does not look for",
            reasons,
        )
        return worker

    def _try(self, mode: str) -> tuple[TemplateWorker, list[str]]:
        """A worker in one mode and what the probe could do in it; NotAvailableError when it does not work."""
        if self.limits.max_processes > 0 and mode in ("setuid", "landlock"):
            raise NotAvailableError("limits.max_processes above 0 needs namespaces, to end every process again")
        self._mode = mode
        worker = self._start()
        try:
            with Probe(self.limits) as probe:
                (evaluation,) = Batch([worker], self._start, [probe.job()], self.limits, self.job_bytes).run()
            broken = probe.broken(evaluation)
        except SandboxError as error:
            broken = str(error)
        except BaseException:
            worker.kill()
            raise
        if broken is not None:
            worker.kill()
            raise NotAvailableError(broken)
        return worker, probe.leaks(evaluation)

    def _start(self) -> TemplateWorker:
        """A new template process in the mode that was found to work, ready to serve."""
        worker = self._launch()
        worker.await_ready()
        return worker

    def _launch(self) -> TemplateWorker:
        self._num_started += 1
        return TemplateWorker(
            {
                "isolation": self._mode,
                "uid": _FIRST_UID + self._num_started % _NUM_UIDS,
                "limits": asdict(self.limits),
                "job_bytes": self.job_bytes,
                "answer_bytes": self.limits.answer_bytes,
                "grace_s": self.grace_s,
            }
        )

    def _restock(self) -> None:
        """Replace workers that ended while nobody looked, and bring their number up to the one asked for."""
        for worker in [worker for worker in self._workers if not worker.alive()]:
            worker.kill()
            self._workers.remove(worker)
        wanted = self.num_workers or _usable_cores()
        starting: list[TemplateWorker] = []
        try:
            for _ in range(wanted - len(self._workers)):
                starting.append(self._launch())
            while starting:
                starting[0].await_ready()
                self._workers.append(starting.pop(0))
        except NotAvailableError as error:
            raise SandboxError(f"a sandbox worker could not be isolated like the first one: {error}") from error
        finally:
            _end(starting, os.getpid())

    def _drop_busy(self) -> None:
        """End workers whose replies nobody will read (the batch was interrupted); the next batch starts new ones."""
        for worker in [worker for worker in self._workers if worker.in_flight]:
            worker.kill()
            self._workers.remove(worker)


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), _MAX_WORKERS)
    return min(os.cpu_count() or 1, _MAX_WORKERS)


def _end(workers: list[TemplateWorker], owner: int) -> None:
    """End the workers if this process started them; a forked copy only drops its handles."""
    if owner == os.getpid():
        for worker in workers:
            worker.hang_up()
        for worker in workers:
            worker.kill()
    else:
        for worker in workers:
            worker.disown()
    workers.clear()
