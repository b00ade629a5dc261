"""From fork to candidate code: what a child gives up, in order, before it says that it is ready."""

from __future__ import annotations

import math
import os
import posix
import resource
import sys
from typing import Any

from composer_rl.sandboxes.template import frames, harness, kernel
from composer_rl.sandboxes.template.isolation import Isolation

ANSWER = 3
"""Descriptor of the answer pipe in the child; the template keeps it occupied so that nothing else lands there."""
TEMPLATE_DESCRIPTORS = 256
"""The template limits itself to descriptors below this, so that a child can close them all in no time."""
_MAX_DESCRIPTORS = 64
_OWN_TASKS = 3
"""The child, its template and the launcher, which a kernel may all count against RLIMIT_NPROC."""
_MIB = 1 << 20
_SIGKILL = 9


def main(
    job: memoryview, answer: int, output: int, *, isolation: Isolation, limits: list[tuple[int, int]], budget: int
) -> None:
    """Body of the forked child; never returns. The template is told of a failed step on the answer pipe."""
    try:
        answer = _set_descriptors(answer, output)
        os.setpgid(0, 0)
        isolation.enter_scratch()
        for number, value in limits:
            try:
                resource.setrlimit(number, (value, value))
            except (ValueError, OSError):
                if isolation.strict:
                    raise
        isolation.drop_privileges()
        if kernel.LINUX:
            kernel.prctl(kernel.PR_SET_PDEATHSIG, _SIGKILL, "prctl(PR_SET_PDEATHSIG)")
        isolation.confine(lambda: os.closerange(ANSWER + 1, TEMPLATE_DESCRIPTORS))
    except BaseException as error:  # noqa: BLE001 - reported to the parent, which raises SandboxError
        posix.write(answer, f"{type(error).__name__}: {error}".encode()[:1000])
        posix._exit(1)
    posix.write(answer, frames.READY)
    harness.main(bytes(job), answer, budget)


def _set_descriptors(answer: int, output: int) -> int:
    """Leave /dev/null, the output pipe twice and the answer pipe as `ANSWER`; `close_others` ends the rest."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.dup2(answer, ANSWER, inheritable=False)
    return ANSWER


def plan_limits(limits: dict[str, Any]) -> list[tuple[int, int]]:
    """In the template: (resource, ceiling) pairs that every child sets; a lower hard limit of ours stays."""
    tasks = limits["max_processes"] + limits["max_threads"]
    wanted = {
        "RLIMIT_CPU": math.ceil(limits["cpu_s"]) + 1,
        "RLIMIT_AS": limits["memory_mb"] * _MIB,
        "RLIMIT_FSIZE": limits["file_mb"] * _MIB,
        "RLIMIT_NOFILE": _MAX_DESCRIPTORS,
        "RLIMIT_CORE": 0,
        "RLIMIT_NPROC": tasks + _OWN_TASKS if tasks else 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_RTPRIO": 0,
    }
    known = [(getattr(resource, name), value) for name, value in wanted.items() if hasattr(resource, name)]
    return [(number, clip(number, value)) for number, value in known]


def clip(number: int, value: int) -> int:
    """The value, or the hard limit in force where that is lower."""
    _, hard = resource.getrlimit(number)
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def forget_modules() -> None:
    """In the template: forget the names under which its own modules could be imported by a candidate."""
    for name in [name for name in sys.modules if name == "composer_rl" or name.startswith("composer_rl.")]:
        del sys.modules[name]
