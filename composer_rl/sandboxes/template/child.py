"""From fork to candidate code: what a child gives up, in order, before it says that it is ready."""

from __future__ import annotations

import math
import os
import posix
import resource
import signal
import sys
from typing import Any

from composer_rl.sandboxes.template import frames, harness, kernel
from composer_rl.sandboxes.template.isolation import Isolation

ANSWER = 3
"""Descriptor of the answer pipe in the child; the template keeps it occupied so that nothing else lands there."""
TEMPLATE_DESCRIPTORS = 256
"""The template limits itself to descriptors below this, so that a child can close them all in no time."""
_MAX_DESCRIPTORS = 64
_MIB = 1 << 20


def main(job: bytearray, job_length: int, answer: int, output: int, isolation: Isolation, budget: int) -> None:
    """Body of the forked child; never returns. The template is told of a failed step on the answer pipe."""
    try:
        answer = _set_descriptors(answer, output)
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        isolation.enter_scratch()
        _set_limits(isolation)
        isolation.drop_privileges()
        if kernel.LINUX:
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, "prctl(PR_SET_PDEATHSIG)")
        isolation.confine(lambda: os.closerange(ANSWER + 1, TEMPLATE_DESCRIPTORS))
    except BaseException as error:  # noqa: BLE001 - reported to the parent, which raises SandboxError
        posix.write(answer, f"{type(error).__name__}: {error}".encode()[:1000])
        posix._exit(1)
    posix.write(answer, frames.READY)
    with memoryview(job) as view:
        text = bytes(view[:job_length])
    harness.main(text, answer, budget)


def _set_descriptors(answer: int, output: int) -> int:
    """Leave /dev/null, the output pipe twice and the answer pipe as `ANSWER`; `close_others` ends the rest."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.dup2(answer, ANSWER, inheritable=False)
    return ANSWER


def _set_limits(isolation: Isolation) -> None:
    """Ceilings that the candidate cannot raise again; a refused one is fatal where isolation is strict."""
    limits = isolation.limits
    cpu_s = math.ceil(limits["cpu_s"]) + 1
    tasks = limits["max_processes"] + limits["max_threads"]
    wanted: list[tuple[str, int]] = [
        ("RLIMIT_CPU", cpu_s),
        ("RLIMIT_AS", limits["memory_mb"] * _MIB),
        ("RLIMIT_FSIZE", limits["file_mb"] * _MIB),
        ("RLIMIT_NOFILE", _MAX_DESCRIPTORS),
        ("RLIMIT_CORE", 0),
        ("RLIMIT_NPROC", tasks + 3 if tasks else 0),
        ("RLIMIT_MEMLOCK", 0),
        ("RLIMIT_MSGQUEUE", 0),
        ("RLIMIT_RTPRIO", 0),
    ]
    for name, value in wanted:
        number: Any = getattr(resource, name, None)
        if number is None:
            continue
        try:
            set_limit(number, value)
        except (ValueError, OSError):
            if isolation.strict:
                raise


def set_limit(number: int, value: int) -> None:
    """Set a soft and hard resource limit, or keep a hard limit that is lower already."""
    _, hard = resource.getrlimit(number)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(number, (value, value))


def forget_modules() -> None:
    """In the template: forget the names under which its own modules could be imported by a candidate."""
    for name in [name for name in sys.modules if name == "composer_rl" or name.startswith("composer_rl.")]:
        del sys.modules[name]
