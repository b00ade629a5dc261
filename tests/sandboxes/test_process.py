"""The process sandbox: answers, order, limits, replacement of workers, life and death of its processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from composer_rl.errors import SandboxError
from composer_rl.sandboxes import process
from composer_rl.sandboxes.base import Call, Evaluation, EvaluationJob, Limits
from composer_rl.sandboxes.probe import Probe
from composer_rl.sandboxes.process import ProcessSandbox
from tests.sandboxes import attacks
from tests.sandboxes.helpers import REPOSITORY, descendants, gold, open_or_skip, ordinary_user, passes, running

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


def value_of(sandbox: ProcessSandbox, source: str, *args: Any) -> Any:
    """What f(*args) returns."""
    (evaluation,) = sandbox.evaluate([attacks.call(source, args=args)])
    (outcome,) = evaluation.outcomes
    assert outcome.ok, f"{evaluation.status}: {outcome}"
    return outcome.value


def wait_until_gone(pids: set[int], timeout_s: float = 20.0) -> set[int]:
    """Those of the processes that still run after the timeout."""
    deadline = time.monotonic() + timeout_s
    while running(pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return running(pids)


# --- answers ---------------------------------------------------------------------------------------------------------


def test_gold_passes(sandbox: ProcessSandbox) -> None:
    """Good code gets its values (B118)."""
    job = EvaluationJob(source=attacks.GOLD, calls=tuple(Call(function="f", args=(k,)) for k in range(5)))
    (evaluation,) = sandbox.evaluate([job])
    assert evaluation.status == "ok"
    assert [outcome.value for outcome in evaluation.outcomes] == [17, 18, 19, 20, 21]


VALUES = [
    None, True, False, 0, -1, 2**200, 0.1, -0.0, 1e308, float("inf"), -float("inf"), "", "a\n\"\\é\u2028\ud800", [],
    {}, [1, [2.5, {"a": [None, True]}]], {"x": {"": []}},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_arrive_as_they_are(sandbox: ProcessSandbox, value: Any) -> None:
    """Values travel both ways with exact types."""
    got = value_of(sandbox, "def f(x):\n    return x", value)
    assert (type(got), repr(got)) == (type(value), repr(value))


def test_nan_arrives(sandbox: ProcessSandbox) -> None:
    """NaN is a value (that equals nothing)."""
    got = value_of(sandbox, "def f(x):\n    return float('nan')", 0)
    assert got != got


@pytest.mark.parametrize(
    "argument", [(1,), {1: 2}, {1, 2}, b"x", object(), 1 << 20_000], ids=lambda value: type(value).__name__
)
def test_arguments_must_be_json(sandbox: ProcessSandbox, argument: object) -> None:
    """A caller's argument that is not JSON is refused by name."""
    with pytest.raises(ValueError, match=r"jobs\[1\]: the arguments of f"):
        sandbox.evaluate([gold(), attacks.call(attacks.GOLD, args=(argument,))])
    assert passes(sandbox)


def test_errors_are_named(sandbox: ProcessSandbox) -> None:
    """Exceptions come back with class name and text, and do not end the calls after them."""
    source = "def f(x):\n    return 1 / x\ndef g():\n    return h\n"
    calls = (Call(function="f", args=(0,)), Call(function="g"), Call(function="f", args=(1,)), Call(function="k"))
    (evaluation,) = sandbox.evaluate([EvaluationJob(source=source, calls=calls)])
    assert [outcome.error_type for outcome in evaluation.outcomes] == [
        "ZeroDivisionError",
        "NameError",
        "",
        "NameError",
    ]
    assert evaluation.outcomes[0].error_message == "division by zero"
    assert evaluation.outcomes[2].value == 1.0


def test_error_of_the_module_is_the_error_of_every_call(sandbox: ProcessSandbox) -> None:
    """A module that does not load answers every call with its own exception."""
    calls = (Call(function="f"), Call(function="g"))
    (evaluation,) = sandbox.evaluate([EvaluationJob(source="print('x')\n1 / 0", calls=calls)])
    assert evaluation.status == "ok"
    assert [outcome.error_type for outcome in evaluation.outcomes] == ["ZeroDivisionError"] * 2
    assert evaluation.output == "x\n"


def test_answers_before_a_timeout_count(sandbox: ProcessSandbox) -> None:
    """Calls that answered before the process was stopped keep their values; the others have none."""
    source = "def f(x):\n    while x:\n        pass\n    return 17"
    calls = tuple(Call(function="f", args=(x,)) for x in (0, 1, 0))
    (evaluation,) = sandbox.evaluate([EvaluationJob(source=source, calls=calls)])
    assert evaluation.status == "timeout"
    assert [outcome.ok for outcome in evaluation.outcomes] == [True, False, False]
    assert evaluation.outcomes[2].error_type == "NoAnswer"
    assert "timeout" in evaluation.outcomes[2].error_message


def test_results_are_in_order(sandbox: ProcessSandbox) -> None:
    """Slow jobs do not change places with quick ones; jobs far outnumber workers."""
    source = "import time\ndef f(x):\n    time.sleep(0.05 if x % 3 == 0 else 0)\n    return x"
    evaluations = sandbox.evaluate([attacks.call(source, args=(k,)) for k in range(20)])
    assert [evaluation.outcomes[0].value for evaluation in evaluations] == list(range(20))


def test_no_jobs(sandbox: ProcessSandbox) -> None:
    """An empty batch, and a job without calls, are answered."""
    assert sandbox.evaluate([]) == []
    assert sandbox.evaluate([EvaluationJob(source="", calls=())]) == [Evaluation(status="ok", outcomes=())]


def test_large_job(sandbox: ProcessSandbox) -> None:
    """A job larger than a socket's buffer arrives whole; one larger than the limit is answered, not run."""
    padding = "#" * 1_500_000
    assert value_of(sandbox, f"def f(x):\n    return x\n{padding}", "y" * 200_000) == "y" * 200_000
    (evaluation,) = sandbox.evaluate([attacks.call(attacks.GOLD + padding * 2)])
    assert evaluation.status == "crashed"
    assert "job_bytes" in evaluation.outcomes[0].error_message


def test_output_is_captured(sandbox: ProcessSandbox) -> None:
    """stdout and stderr are kept in order, undecodable bytes replaced."""
    source = "import os, sys\ndef f(x):\n    print('out')\n    print('err', file=sys.stderr)\n    os.write(1, b'\\xff')"
    (evaluation,) = sandbox.evaluate([attacks.call(source)])
    assert evaluation.output == "out\nerr\n\ufffd"


# --- isolation -------------------------------------------------------------------------------------------------------


def test_every_job_has_a_fresh_process_and_folder(fresh: ProcessSandbox) -> None:
    """State that one job leaves in modules, builtins or its folder is not there for the next."""
    leave = (
        "import builtins, math\ndef f(x):\n    math.pi = builtins.seen = 3\n    open('left', 'w').close()\n    return 1"
    )
    look = "import builtins, math, os\ndef f(x):\n    return [math.pi == 3, hasattr(builtins, 'seen'), os.listdir('.')]"
    assert value_of(fresh, leave, 0) == 1
    assert value_of(fresh, look, 0) == [False, False, []]


def test_hash_seed_and_time_zone_are_fixed(fresh: ProcessSandbox) -> None:
    """Hashes of strings and local time do not depend on the run or the machine."""
    source = "import time\ndef f(x):\n    return [hash('x'), time.timezone, time.localtime(0).tm_hour]"
    first = value_of(fresh, source, 0)
    with open_or_skip(num_workers=1) as other:
        assert value_of(other, source, 0) == first
    assert first[1:] == [0, 0]


def test_one_job_cannot_find_another_ones_data(fresh: ProcessSandbox) -> None:
    """Searches the interpreter's whole heap for what the job before was given, printed and returned."""
    secret = "needle-" + "5f3a9c"
    source = f"def f(x):\n    print(x, {secret!r})\n    return x + {secret!r}"
    assert value_of(fresh, source, secret) == secret * 2
    search = textwrap.dedent(
        """
        import ctypes, os
        def f(backwards):
            pattern = backwards.encode()[::-1]
            control = bytes(bytearray(pattern[:7] + b"control"))
            libc = ctypes.CDLL(None)
            read_end, write_end = os.pipe()
            found = [0, 0]
            start = id(control) & ~0xFFF
            for page in range(start - (96 << 20), start + (96 << 20), 4096):
                if libc.write(write_end, ctypes.c_void_p(page), ctypes.c_size_t(4096)) == 4096:
                    data = os.read(read_end, 4096)
                    found[0] += pattern in data
                    found[1] += (pattern[:7] + b"control") in data
            return found
        """
    )
    places, controls = value_of(fresh, search, secret[::-1])
    assert controls > 0, "the search does not even find its own data"
    # The pattern itself, turned round, lies in this child's memory a few times; the other job's text would add to it.
    baseline, _ = value_of(fresh, search, ("needle-" + "000000")[::-1])
    assert places <= baseline


def test_threads_are_allowed_processes_are_not(sandbox: ProcessSandbox) -> None:
    """An honest module may use threads."""
    source = (
        "import _thread, time\ndef f(x):\n    got = []\n    _thread.start_new_thread(got.append, (17,))\n"
        "    while not got:\n        time.sleep(0.001)\n    return got[0]"
    )
    assert value_of(sandbox, source, 0) == 17


def test_memory_does_not_grow(fresh: ProcessSandbox) -> None:
    """A memory bomb in every job leaves the template as small as it was (B116)."""
    if sys.platform != "linux":
        pytest.skip("reads /proc")
    bomb = attacks.call("def f(x):\n    a = []\n    while True:\n        a.append(bytearray(1 << 20))")

    def resident_kb() -> int:
        pids = descendants(fresh._workers[0].pid)
        texts = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
        return sum(int(text.split("VmRSS:")[1].split()[0]) for text in texts)

    fresh.evaluate([bomb] * 3)
    before = resident_kb()
    evaluations = fresh.evaluate([bomb] * 12)
    assert {evaluation.outcomes[0].error_type for evaluation in evaluations} == {"MemoryError"}
    assert resident_kb() < before + 1024


def test_processes_when_allowed_end_with_the_job() -> None:
    """With max_processes, a daemon that detaches twice is gone when its job is; namespaces only."""
    limits = Limits(max_processes=5, wall_s=5.0)
    sandbox = open_or_skip(num_workers=1, limits=limits, isolation="namespaces")
    source = (
        "import os, time\ndef f(x):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n"
        "            time.sleep(600)\n        os._exit(0)\n    return os.wait()[1]"
    )
    with sandbox:
        assert value_of(sandbox, source, 0) == 0
        assert len(descendants(sandbox._workers[0].pid)) == 2
    with pytest.raises(SandboxError, match="max_processes above 0 needs namespaces"):
        ProcessSandbox(limits=limits, isolation="setuid").open()


def test_smallest_limits_work() -> None:
    """The smallest memory and output limits still run good code."""
    limits = Limits(memory_mb=32, output_bytes=256, answer_bytes=1024, max_threads=0, file_mb=0, scratch_mb=1)
    with pytest.raises(SandboxError, match="known-good"):
        ProcessSandbox(limits=Limits(file_mb=0), num_workers=1).open()
    with open_or_skip(num_workers=1, limits=Limits(**{**vars(limits), "file_mb": 1})) as sandbox:
        assert passes(sandbox)


# --- workers ---------------------------------------------------------------------------------------------------------


@LINUX
def test_a_template_that_dies_is_replaced_and_its_jobs_run_again(fresh: ProcessSandbox) -> None:
    """Kills the worker in the middle of a batch: every job still gets its answer."""
    victim = fresh._workers[0].pid
    source = "import time\ndef f(x):\n    time.sleep(0.2)\n    return x"
    timer = threading.Timer(0.3, os.kill, (victim, signal.SIGKILL))
    timer.start()
    evaluations = fresh.evaluate([attacks.call(source, args=(k,)) for k in range(5)])
    timer.join()
    assert [evaluation.outcomes[0].value for evaluation in evaluations] == list(range(5))
    assert fresh._workers[0].pid != victim
    assert not wait_until_gone({victim})


@LINUX
def test_a_template_that_hangs_is_replaced() -> None:
    """Stops the template: after the grace period its job runs in another one."""
    with open_or_skip(num_workers=1, limits=Limits(wall_s=0.5), grace_s=0.5) as sandbox:
        stopped = descendants(sandbox._workers[0].pid)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        assert passes(sandbox)
        assert not wait_until_gone(stopped)


@LINUX
def test_a_template_that_died_idle_is_replaced(fresh: ProcessSandbox) -> None:
    """Kills the worker between batches."""
    os.kill(fresh._workers[0].pid, signal.SIGKILL)
    assert passes(fresh)
    assert len(fresh._workers) == 1


def test_sandbox_failure_is_an_error_not_a_zero(fresh: ProcessSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that costs two templates their lives raises, and the sandbox works again afterwards."""
    from composer_rl.sandboxes.worker import TemplateWorker, WorkerLostError

    def lost(self: TemplateWorker) -> list[Any]:
        raise WorkerLostError("made up")

    monkeypatch.setattr(TemplateWorker, "receive", lost)
    with pytest.raises(SandboxError, match=r"failed 2 times on jobs\[0\].*made up"):
        fresh.evaluate([gold()])
    monkeypatch.undo()
    assert passes(fresh)


def test_interrupted_batch_does_not_confuse_the_next(fresh: ProcessSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between request and reply: the stale reply is never taken for a new job's."""
    from composer_rl.sandboxes.batch import Batch

    def interrupt(self: Batch, index: int, num_calls: int, reply: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Batch, "_finish", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fresh.evaluate([attacks.call("def f(x):\n    return 'stale'")] * 3)
    monkeypatch.undo()
    assert passes(fresh)


def test_threads_take_turns(sandbox: ProcessSandbox) -> None:
    """Four threads evaluate at once; each gets its own answers."""
    results: dict[int, list[int]] = {}

    def work(number: int) -> None:
        jobs = [attacks.call(f"def f(x):\n    return {number} * 100 + x", args=(k,)) for k in range(8)]
        results[number] = [evaluation.outcomes[0].value for evaluation in sandbox.evaluate(jobs)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [number * 100 + k for k in range(8)] for number in range(4)}


@LINUX
def test_opened_in_a_thread_that_ends() -> None:
    """The workers belong to the process, not to the thread that opened them."""
    sandbox = ProcessSandbox(num_workers=1)
    open_or_skip(num_workers=1).close()
    thread = threading.Thread(target=sandbox.open)
    thread.start()
    thread.join()
    with contextlib.closing(sandbox):
        pids = descendants(sandbox._workers[0].pid)
        time.sleep(0.1)
        assert running(pids) == pids
        assert passes(sandbox)


@LINUX
def test_close_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing twice is fine; no process and no file is left; evaluating then is an error; opening again works."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sandbox = open_or_skip(num_workers=2)
    pids = set().union(*(descendants(worker.pid) for worker in sandbox._workers))
    assert passes(sandbox)
    assert sandbox.in_force
    sandbox.close()
    sandbox.close()
    assert not running(pids)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SandboxError, match="not open"):
        sandbox.evaluate([gold()])
    with sandbox:
        sandbox.open()
        assert passes(sandbox)


@LINUX
def test_a_forked_copy_is_refused_and_harmless(fresh: ProcessSandbox) -> None:
    """A forked process (a data loader's worker) cannot use or end the parent's workers, but may open its own."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        report = b"?"
        try:
            try:
                fresh.evaluate([gold()])
            except SandboxError as error:
                report = b"refused" if "another process" in str(error) else b"?"
            fresh.close()
            fresh.open()
            report += b" reopened" if passes(fresh) else b" broken"
            fresh.close()
        finally:
            os.write(writer, report)
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    assert os.read(reader, 100) == b"refused reopened"
    os.close(reader)
    assert passes(fresh)


# --- the parent's death and Ctrl-C -----------------------------------------------------------------------------------

SCRIPT = """
import os, sys
from composer_rl.sandboxes.base import Call, EvaluationJob, Limits
from composer_rl.sandboxes.process import ProcessSandbox
def job(source):
    return EvaluationJob(source=source, calls=(Call(function="f"),))
sandbox = ProcessSandbox(num_workers=2, limits=Limits(wall_s=60.0), isolation=sys.argv[1])
sandbox.open()
print("ready", flush=True)
try:
    sandbox.evaluate([job("import time\\ndef f():\\n    open('x', 'w')\\n    time.sleep(50)")] * 2)
except KeyboardInterrupt:
    (evaluation,) = sandbox.evaluate([job("def f():\\n    return 17")])
    print("interrupted", evaluation.outcomes[0].value, flush=True)
"""


def start_script(mode: str, folder: Path, python: str, settings: dict[str, Any]) -> subprocess.Popen[str]:
    """The script above, with its temporary files in `folder`, once its sandbox is open."""
    settings = {**settings, "env": {"PYTHONPATH": str(REPOSITORY), "TMPDIR": str(folder), **settings.get("env", {})}}
    folder.chmod(0o777)
    script = subprocess.Popen(
        [python, "-c", SCRIPT, mode],
        **settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert script.stdout is not None
    assert script.stderr is not None
    if script.stdout.readline() != "ready\n":
        error = script.stderr.read()
        script.wait()
        if "cannot isolate" in error:
            pytest.skip(error.strip().splitlines()[-1])
        pytest.fail(error)
    return script


def runs_a_job(pid: int) -> bool:
    """Whether the process has written its file; True where another user's folder may not be looked at."""
    try:
        return os.stat(f"/proc/{pid}/cwd/x").st_size == 0
    except PermissionError:
        return True
    except OSError:
        return False


def wait_for_children(pid: int) -> set[int]:
    """All processes below the script, once both of its jobs run."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        pids = descendants(pid) - {pid}
        leaves = [child for child in pids if descendants(child) == {child}]
        if len(leaves) == 2 and len(pids) >= 4 and all(map(runs_a_job, leaves)):
            return pids
        time.sleep(0.02)
    pytest.fail("the jobs did not start")


@LINUX
@pytest.mark.parametrize("mode", ["namespaces", "setuid", "landlock", "user namespaces"])
def test_no_orphans_after_sigkill(mode: str, tmp_path: Path) -> None:
    """SIGKILLs the training process in the middle of two jobs: templates, children and scratch folders go too."""
    python, settings = sys.executable, {}
    if mode in ("landlock", "user namespaces") and os.geteuid() == 0:
        python, settings = ordinary_user()
        for folder in [tmp_path, *tmp_path.parents][:4]:
            folder.chmod(folder.stat().st_mode | 0o011)
    script = start_script(mode.removeprefix("user "), tmp_path, python, settings)
    pids = wait_for_children(script.pid)
    script.kill()
    script.communicate()
    assert not wait_until_gone(pids)
    deadline = time.monotonic() + 5
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(tmp_path.iterdir()) == []


@LINUX
def test_ctrl_c_reaches_the_script_and_not_the_templates(tmp_path: Path) -> None:
    """SIGINT to the whole foreground group while jobs run: the batch is interrupted, the next one works."""
    script = start_script("auto", tmp_path, sys.executable, {})
    wait_for_children(script.pid)
    os.killpg(script.pid, signal.SIGINT)
    output, error = script.communicate(timeout=60)
    assert output == "interrupted 17\n", error
    assert script.returncode == 0


# --- settings and refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_workers": 0}, r"num_workers must be None or in \[1, 256\], got 0"),
        ({"isolation": "docker"}, "isolation must be one of auto, .* got 'docker'"),
        ({"isolation": "none"}, "isolation must not be 'none' unless allow_weak is true"),
        ({"job_bytes": 10}, "job_bytes must be at least 4096, got 10"),
        ({"grace_s": 0}, "grace_s must be above 0 and at most 3600 seconds, got 0"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    """Each wrong setting is named with its rule and value."""
    with pytest.raises(ValueError, match=message):
        ProcessSandbox(**settings)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a mode that this user does not have")
def test_missing_isolation_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """A mode that does not work here is refused with its reason, or warned of when allowed to be weak."""
    with pytest.raises(SandboxError, match=r"landlock: running as root.*allow_weak=true"):
        ProcessSandbox(isolation="landlock", num_workers=1).open()
    for _ in range(2):
        caplog.clear()
        with ProcessSandbox(isolation="landlock", num_workers=1, allow_weak=True) as weak:
            assert passes(weak)
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert "NOT isolated" in record.message
        assert "landlock: running as root" in record.message


def test_a_leak_that_the_probe_finds_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A mode that starts but does not hold is refused by what got through; allow_weak keeps it and warns."""
    open_or_skip(num_workers=1).close()
    monkeypatch.setattr(Probe, "leaks", lambda self, evaluation: ["open a network socket"])
    with pytest.raises(SandboxError, match="candidate code could open a network socket"):
        ProcessSandbox(num_workers=1).open()
    with ProcessSandbox(num_workers=1, allow_weak=True) as weak:
        assert weak.in_force
        assert passes(weak)
    assert "it can open a network socket" in caplog.text


def test_no_isolation_at_all_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no mode works the error names each with its reason, and nothing keeps running."""
    from composer_rl.sandboxes.worker import NotAvailableError

    def fail(self: ProcessSandbox, mode: str) -> Any:
        raise NotAvailableError(f"no {mode} on this machine")

    monkeypatch.setattr(process.ProcessSandbox, "_try", fail)
    sandbox = ProcessSandbox()
    with pytest.raises(SandboxError) as caught:
        sandbox.open()
    for mode in ("namespaces", "setuid", "landlock"):
        assert f"no {mode} on this machine" in str(caught.value)
    assert sandbox._workers == []


def test_probe_names_what_got_through() -> None:
    """The probe's report on an evaluation in which everything succeeded."""
    probe = Probe(Limits())
    with probe:
        job = probe.job()
    from composer_rl.sandboxes.base import CallOutcome

    outcomes = tuple(CallOutcome(ok=True, value=value) for value in (42, [], True, *[True] * (len(job.calls) - 3)))
    evaluation = Evaluation(status="ok", outcomes=outcomes)
    assert probe.broken(evaluation) is None
    assert len(probe.leaks(evaluation)) == len(job.calls) - 3
    assert "open a network socket" in probe.leaks(evaluation)
