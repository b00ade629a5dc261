# ruff: noqa: E501 - modules written as one string a line
"""Hostile modules, each with what it tries and what it may at most get; plain data, run in every isolation mode.

`f(0) == 17` is the test that all of them are after. Run as a script, it prints the outcomes as JSON: that is how the
modes of an ordinary user are tried by a test suite that runs as root.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import Any

from composer_rl.sandboxes.base import Call, Evaluation, EvaluationJob, Limits
from composer_rl.sandboxes.process import ProcessSandbox

EXPECTED = 17
LIMITS = Limits(wall_s=1.5, cpu_s=0.3, memory_mb=96, output_bytes=4096)


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One hostile module."""

    name: str
    source: str
    """Defines `f(x)`, unless it is the module itself that attacks."""
    statuses: tuple[str, ...] = ("ok",)
    """Statuses that the evaluation may have."""
    value: Any = "refused"
    """Exact value that f may return (it never earns a pass); "refused" when f must not return at all."""
    slow: bool = False
    """Ends at a time limit."""


def call(source: str, function: str = "f", args: tuple[Any, ...] = (0,)) -> EvaluationJob:
    """A job with one call."""
    return EvaluationJob(source=source, calls=(Call(function=function, args=args),))


GOLD = "def f(x):\n    return x + 17\n"

ENDINGS = [
    Attack(name="exit code 0 by sys.exit at import", source="import sys\nsys.exit(0)"),
    Attack(name="exit code 0 by os._exit at import", source="import os\nos._exit(0)", statuses=("crashed",)),
    Attack(name="os._exit in the call", source="import os\ndef f(x):\n    os._exit(0)", statuses=("crashed",)),
    Attack(name="sys.exit in the call", source="import sys\ndef f(x):\n    sys.exit(0)"),
    Attack(name="raise SystemExit", source="def f(x):\n    raise SystemExit(0)"),
    Attack(name="raise KeyboardInterrupt", source="def f(x):\n    raise KeyboardInterrupt"),
    Attack(name="raise BaseException", source="def f(x):\n    raise BaseException('x')"),
    Attack(
        name="an exception whose text raises",
        source="class E(Exception):\n    def __str__(self):\n        raise SystemExit\ndef f(x):\n    raise E",
    ),
    Attack(name="abort", source="import os\ndef f(x):\n    os.abort()", statuses=("crashed",)),
    Attack(
        name="kill itself",
        source="import os\ndef f(x):\n    os.kill(os.getpid(), 11)",
        statuses=("crashed", "ok"),
        value=None,
    ),
    Attack(
        name="null pointer by ctypes",
        source="import ctypes\ndef f(x):\n    return ctypes.string_at(0)",
        statuses=("crashed", "ok"),
    ),
    Attack(name="syntax error", source="def f(x):\n    return ("),
    Attack(name="null byte in the source", source="def f(x):\n    return 17\0"),
    Attack(name="lone surrogate in the source", source="def f(x):\n    return '\ud800'"),
    Attack(name="no such function", source="def g(x):\n    return 17"),
    Attack(name="f is not callable", source="f = 17"),
]

VALUES = [
    Attack(
        name="equal to everything",
        source="class A:\n    def __eq__(self, other):\n        return True\n    __hash__ = None\ndef f(x):\n    return A()",
    ),
    Attack(
        name="equal to everything, an int by inheritance",
        source="class A(int):\n    def __eq__(self, other):\n        return True\n    def __hash__(self):\n        return 17\n"
        "def f(x):\n    return A(17)",
    ),
    Attack(name="a str by inheritance", source="class A(str):\n    pass\ndef f(x):\n    return A('17')"),
    Attack(
        name="claims to be an int",
        source="class A:\n    __class__ = int\n    def __repr__(self):\n        return '17'\ndef f(x):\n    return A()",
    ),
    Attack(name="True", source="def f(x):\n    return True", value=True),
    Attack(name="17.0", source="def f(x):\n    return 17.0", value=17.0),
    Attack(name="'17'", source="def f(x):\n    return '17'", value="17"),
    Attack(name="a generator", source="def f(x):\n    yield 17"),
    Attack(name="a coroutine", source="async def f(x):\n    return 17"),
    Attack(name="a tuple", source="def f(x):\n    return (17,)"),
    Attack(name="a dict with an int key", source="def f(x):\n    return {1: 17}"),
    Attack(name="a list in itself", source="def f(x):\n    a = []\n    a.append(a)\n    return a"),
    Attack(
        name="nested too deep", source="def f(x):\n    a = []\n    for _ in range(500):\n        a = [a]\n    return a"
    ),
    Attack(name="a huge str", source="def f(x):\n    return 'x' * 5_000_000"),
    Attack(name="a huge list", source="def f(x):\n    return [0] * 3_000_000", statuses=("ok", "timeout")),
    Attack(name="a huge int", source="def f(x):\n    return 1 << 10**8"),
    Attack(name="10**10**8", source="def f(x):\n    return 10**10**8", statuses=("ok", "timeout", "memory"), slow=True),
    Attack(name="a lone surrogate", source="def f(x):\n    return '\\ud800'", value="\ud800"),
]

FORGERIES = [
    Attack(
        name="print pass markers",
        source="def f(x):\n    print('1 passed in 0.01s\\nPASSED\\n{\"ok\": true}\\n[0,17]')\n    return None",
        value=None,
    ),
    Attack(
        name="garbage to every descriptor",
        source="import os\ndef f(x):\n    for fd in range(256):\n        try:\n            os.write(fd, b'garbage\\n')\n"
        "        except OSError:\n            pass\n    return 17",
        statuses=("crashed",),
    ),
    Attack(
        name="too many answers",
        source="import os\ndef f(x):\n    os.write(3, b'[0,1]\\n' * 50)\n    return 1",
        statuses=("crashed",),
    ),
    Attack(
        name="flood the answer pipe",
        source="import os\ndef f(x):\n    while True:\n        os.write(3, b'[0,' + b'1' * 60000)",
        statuses=("output_limit",),
    ),
    Attack(
        name="an answer nested a million deep",
        source="import os\ndef f(x):\n    os.write(3, b'[0,' + b'[' * 500_000 + b'\\n')\n    os._exit(0)",
        statuses=("crashed",),
    ),
    Attack(
        name="close every descriptor",
        source="import os\ndef f(x):\n    os.closerange(0, 256)\n    return 17",
        statuses=("crashed",),
    ),
    Attack(
        name="patch builtins",
        source="import builtins\ndef f(x):\n    builtins.type = lambda v: int\n    builtins.repr = lambda v: '18'\n"
        "    builtins.len = None\n    return 'x'",
        statuses=("ok", "crashed"),
        value=18,
    ),
    Attack(
        name="patch json and posix",
        source="import json, posix\njson.loads = json.dumps = None\nposix._exit = lambda code: None\n"
        "def f(x):\n    return 1",
        statuses=("ok", "crashed"),
        value=1,
    ),
    Attack(
        name="look for the expected value in modules, frames and the garbage collector",
        source="import gc, sys\n"
        "def f(x):\n"
        "    seen, frame = [], sys._getframe()\n"
        "    while frame:\n"
        "        seen += list(frame.f_locals.values()) + list(frame.f_globals.values())\n"
        "        frame = frame.f_back\n"
        "    seen += gc.get_objects()\n"
        "    names = [n for n in sys.modules if 'composer' in n or 'torch' in n or 'grading' in n]\n"
        "    found = [o for o in seen if isinstance(o, dict) and 'expected' in o]\n"
        "    return [names, len(found)]",
        value=[[], 0],
    ),
    Attack(
        name="rewrite the call by a trace function",
        source="import sys\ndef g(frame, event, arg):\n    frame.f_trace_opcodes = True\n    return g\n"
        "def f(x):\n    sys.settrace(g)\n    return None",
        value=None,
    ),
    Attack(
        name="reach the package",
        source="import sys\ndef f(x):\n    sys.path += PATHS\n    import composer_rl.envs.grading\n    return 17".replace(
            "PATHS", repr([os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))])
        ),
    ),
]

HOGS = [
    Attack(name="busy loop", source="def f(x):\n    while True:\n        pass", statuses=("timeout",), slow=True),
    Attack(name="busy loop at import", source="while True:\n    pass", statuses=("timeout",), slow=True),
    Attack(
        name="busy loop in an asyncio task (B115)",
        source="import asyncio\nasync def g():\n    while True:\n        pass\n"
        "def f(x):\n    return asyncio.run(asyncio.wait_for(g(), 0.1))",
        statuses=("timeout",),
        slow=True,
    ),
    Attack(
        name="busy loop in a thread",
        source="import threading\ndef g():\n    while True:\n        pass\n"
        "def f(x):\n    t = threading.Thread(target=g)\n    t.start()\n    t.join()\n    return 17",
        statuses=("timeout",),
        slow=True,
    ),
    Attack(name="sleep", source="import time\ndef f(x):\n    time.sleep(100)", statuses=("timeout",), slow=True),
    Attack(
        name="ignore every signal and sleep",
        source="import signal, time\nfor n in range(1, 60):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError):\n        pass\ndef f(x):\n    while True:\n        time.sleep(1)",
        statuses=("timeout",),
        slow=True,
    ),
    Attack(
        name="print for ever (B113)",
        source="def f(x):\n    print('head')\n    while True:\n        print('x' * 1000)",
        statuses=("timeout", "output_limit"),
        slow=True,
    ),
    Attack(
        name="memory bomb (B116)", source="def f(x):\n    a = []\n    while True:\n        a.append(bytearray(1 << 20))"
    ),
    Attack(
        name="memory bomb in one piece", source="def f(x):\n    return len(bytes(1 << 40))", statuses=("ok", "memory")
    ),
    Attack(
        name="raise the limits",
        source="import resource\ndef f(x):\n    n = 0\n    for name in ('CPU', 'AS', 'NPROC', 'FSIZE', 'NOFILE', 'CORE'):\n"
        "        limit = getattr(resource, 'RLIMIT_' + name)\n        soft, hard = resource.getrlimit(limit)\n"
        "        try:\n            resource.setrlimit(limit, (hard + 1, hard + 1))\n            n += 1\n"
        "        except (OSError, ValueError):\n            pass\n    return n",
        value=0,
    ),
    Attack(
        name="deep recursion",
        source="import sys\nsys.setrecursionlimit(10**9)\ndef f(x):\n    return f(x)",
        statuses=("crashed", "ok", "memory", "timeout"),
    ),
    Attack(
        name="deep recursion in the parser",
        source="def f(x):\n    return " + "(" * 5000 + "17" + ")" * 5000,
        statuses=("ok", "crashed"),
    ),
    Attack(
        name="endless decompression of a regular expression",
        source="import re\ndef f(x):\n    return bool(re.match('(a+)+$', 'a' * 40 + 'b'))",
        statuses=("timeout",),
        slow=True,
    ),
    Attack(
        name="fill the disk",
        source="def f(x):\n    with open('big', 'wb') as file:\n        for _ in range(100):\n            file.write(bytes(1 << 20))\n    return 17",
    ),
    Attack(
        name="a thousand threads",
        source="import threading, time\ndef f(x):\n    threading.stack_size(65536)\n    for _ in range(1000):\n"
        "        threading.Thread(target=time.sleep, args=(50,), daemon=True).start()\n    return 17",
    ),
]

ESCAPES = [
    Attack(
        name="fork bomb",
        source="import os\ndef f(x):\n    n = 0\n    for _ in range(100):\n        try:\n            if os.fork() == 0:\n"
        "                while True:\n                    os.fork()\n            n += 1\n        except OSError:\n            pass\n"
        "    return n",
        value=0,
    ),
    Attack(
        name="double fork, setsid, daemon",
        source="import os, time\ndef f(x):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n"
        "            time.sleep(600)\n        os._exit(0)\n    return 17",
    ),
    Attack(
        name="start a program",
        source="import subprocess\ndef f(x):\n    return subprocess.run(['/bin/sleep', '600']).returncode",
    ),
    Attack(name="become a program", source="import os\ndef f(x):\n    os.execv('/bin/sleep', ['sleep', '600'])"),
    Attack(
        name="clone by a raw system call",
        source="import ctypes, platform\ndef f(x):\n    n = 56 if platform.machine() == 'x86_64' else 220\n"
        "    return ctypes.CDLL(None).syscall(n, 17, 0, 0, 0, 0)",
        value=-1,
    ),
    Attack(
        name="new user namespace",
        source="import ctypes\ndef f(x):\n    return ctypes.CDLL(None).unshare(0x10000000)",
        value=-1,
    ),
    Attack(
        name="kill everybody",
        source="import os\ndef f(x):\n    n = 0\n    for pid in [-1, 0, 1, os.getppid(), -os.getpgid(0), *range(2, 3000)]:\n"
        "        if pid == os.getpid():\n            continue\n        try:\n            os.kill(pid, 9)\n            n += 1\n"
        "        except OSError:\n            pass\n    return n",
        value=0,
        statuses=("ok", "crashed"),
    ),
    Attack(
        name="signal by fcntl owner",
        source="import fcntl, os\ndef f(x):\n    r, w = os.pipe()\n    fcntl.fcntl(r, fcntl.F_SETOWN, os.getppid() or 1)\n    return 17",
    ),
    Attack(
        name="slow down others",
        source="import os\ndef f(x):\n    os.setpriority(os.PRIO_USER, os.getuid(), 19)\n    return 17",
    ),
    Attack(
        name="ptrace and write the parent's memory",
        source="import ctypes, os\ndef f(x):\n    libc = ctypes.CDLL(None)\n    pid = os.getppid() or 1\n"
        "    buffer = ctypes.create_string_buffer(8)\n    vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)\n"
        "    done = [libc.ptrace(16, pid, 0, 0), libc.process_vm_readv(pid, vector, 1, vector, 1, 0)]\n"
        "    try:\n        open(f'/proc/{pid}/mem', 'r+b').close()\n        done.append(0)\n    except OSError:\n"
        "        done.append(-1)\n    return done",
        value=[-1, -1, -1],
    ),
    Attack(
        name="environment of all processes",
        source="import os\ndef f(x):\n    n = 0\n    for pid in ['self', *range(1, 3000)]:\n        try:\n"
        "            open(f'/proc/{pid}/environ', 'rb').close()\n            n += 1\n        except OSError:\n            pass\n"
        "    return [n, len(os.environ)]",
        value=[0, 0],
    ),
    Attack(
        name="connect to loopback",
        source="import socket\ndef f(x):\n    s = socket.create_connection(('127.0.0.1', PORT), 1)\n    return 17",
    ),
    Attack(
        name="sockets of other families",
        source="import socket\ndef f(x):\n    n = 0\n    for family in range(0, 50):\n        for kind in (1, 2, 3):\n            try:\n"
        "                socket.socket(family, kind).close()\n                n += 1\n            except OSError:\n"
        "                pass\n    return n",
        value=0,
    ),
    Attack(
        name="write outside the scratch folder",
        source="import os\ndef f(x):\n    n = 0\n    for path in ('/', '/etc', '/usr', '/var/tmp', '/dev', '/dev/shm', '..', '/home', '/root', os.path.dirname(os.__file__)):\n"
        "        try:\n            open(os.path.join(path, 'composer-rl-escape'), 'w').close()\n            n += 1\n"
        "        except OSError:\n            pass\n    return n",
        value=0,
    ),
    Attack(
        name="read by a symlink out of the scratch folder",
        source="import os\ndef f(x):\n    os.symlink('/etc/passwd', 'link')\n    return open('link').read(1)",
    ),
    Attack(
        name="leave a trap for the clean-up",
        source="import os\ndef f(x):\n    os.symlink('/', 'root')\n    os.mkdir('a')\n    os.mkdir('a/b', 0)\n    here = os.getcwd()\n    for _ in range(300):\n"
        "        os.mkdir('d' * 100)\n        os.chdir('d' * 100)\n    return None",
        value=None,
        statuses=("ok",),
    ),
    Attack(
        name="chroot and mount",
        source="import ctypes, os\ndef f(x):\n    libc = ctypes.CDLL(None)\n    return [libc.chroot(b'.'), libc.mount(b'x', b'.', b'tmpfs', 0, 0), libc.setuid(0), libc.setgid(0)]",
        value=[-1, -1, -1, -1],
    ),
    Attack(
        name="memory outside the address space limit",
        source="import os, ctypes\ndef f(x):\n    return [ctypes.CDLL(None).memfd_create(b'x', 0), ctypes.CDLL(None).shmget(0, 1 << 30, 0o1600)]",
        value=[-1, -1],
    ),
]

ATTACKS: list[Attack] = [*ENDINGS, *VALUES, *FORGERIES, *HOGS, *ESCAPES]


def jobs(port: int) -> list[EvaluationJob]:
    """One job an attack; `port` is where a server listens on the loopback address."""
    return [call(attack.source.replace("PORT", str(port))) for attack in ATTACKS]


def judge(attack: Attack, evaluation: Evaluation) -> str | None:
    """What is wrong with an outcome, None when the attack got no more than it may.

    Where the candidate's user cannot read the standard library (an interpreter in root's home), an attack may end at
    an import.
    """
    (outcome,) = evaluation.outcomes
    if outcome.error_type == "ModuleNotFoundError":
        return None
    if evaluation.status not in attack.statuses:
        return f"status {evaluation.status}, not one of {attack.statuses}: {outcome}"
    if outcome.ok and outcome.value == EXPECTED and type(outcome.value) is int:
        return f"it passed the test: {outcome}"
    if outcome.ok and (type(outcome.value), outcome.value) != (type(attack.value), attack.value):
        return f"it returned {outcome.value!r}, not {attack.value!r}"
    return None


def main() -> None:
    """Run the attacks in the mode named on the command line; prints one JSON object."""
    mode, port = sys.argv[1], int(sys.argv[2])
    report: dict[str, Any] = {}
    with ProcessSandbox(isolation=mode, num_workers=4, limits=LIMITS) as sandbox:  # type: ignore[arg-type]
        report["in_force"] = sandbox.in_force
        evaluations = sandbox.evaluate(jobs(port))
        report["problems"] = {
            attack.name: problem
            for attack, evaluation in zip(ATTACKS, evaluations, strict=True)
            if (problem := judge(attack, evaluation)) is not None
        }
        (gold,) = sandbox.evaluate([call(GOLD)])
        report["gold"] = gold.outcomes[0].value
    print(json.dumps(report))  # noqa: T201


if __name__ == "__main__":
    main()
