"""Jobs are real processes: they end well, fail, are killed, run side by side, and are interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from composer_rl.sweeps.environment import ONE_RUN_ONLY, Slot, job_environment, slots
from composer_rl.sweeps.manifest import JobEntry, Manifest
from composer_rl.sweeps.plan import is_held, put_aside
from composer_rl.sweeps.runner import Start, SweepRunner
from composer_rl.sweeps.table import SweepTable

PROGRAM = """
import json, os, pathlib, signal, sys, time
folder, ending, seconds = pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
folder.mkdir()
def record(status, **more):
    (folder / "result.json").write_text(json.dumps({"status": status, **more}))
def end(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGTERM, end)
record("running", environment=dict(os.environ), cores=len(os.sched_getaffinity(0)), started=time.time())
try:
    time.sleep(seconds)
except KeyboardInterrupt:
    record("interrupted", exit_code=130)
    sys.exit(130)
if ending == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if ending == "failed":
    record("failed", error={"type": "ValueError", "message": "bad\\nluck"})
    sys.exit(1)
content = json.loads((folder / "result.json").read_text())
record("succeeded", **{k: v for k, v in content.items() if k != "status"}, ended=time.time())
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Callable[..., tuple[Manifest, SweepRunner, list[Start]]]:
    def build(*endings: str, n_jobs: int = 1, fail_fast: bool = False, seconds: float = 0.0) -> Any:
        manifest = Manifest(name="s", objective="x")
        starts = []
        for number, ending in enumerate(endings):
            entry = JobEntry(num=number, dir=f"{number:02d}-0000000{number}", overrides=[], seed=number, arm={})
            manifest.jobs.append(entry)
            folder = tmp_path / entry.dir
            command = [sys.executable, "-c", PROGRAM, str(folder), ending, str(seconds)]
            starts.append(Start(entry=entry, folder=folder, command=command))
        table = SweepTable(manifest, tmp_path, num_parallel=n_jobs)
        runner = SweepRunner(manifest, tmp_path, slots=slots(n_jobs, []), fail_fast=fail_fast, table=table)
        return manifest, runner, starts

    return build


def statuses(manifest: Manifest) -> list[str]:
    return [job.status for job in manifest.jobs]


def record(tmp_path: Path, number: int) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((tmp_path / f"{number:02d}-0000000{number}" / "result.json").read_text())
    return content


def test_every_ending_is_recorded(sweep: Callable, tmp_path: Path) -> None:
    manifest, runner, starts = sweep("ok", "failed", "killed", "ok")
    runner.run(starts)
    assert statuses(manifest) == ["succeeded", "failed", "failed", "succeeded"]
    assert manifest.jobs[1].error == "ValueError: bad luck"
    assert manifest.jobs[2].error == "ended with signal SIGKILL before it recorded why; see 02-00000002.log"
    written = json.loads((tmp_path / "sweep.json").read_text())
    assert [job["status"] for job in written["jobs"]] == statuses(manifest)
    assert [job["attempts"] for job in written["jobs"]] == [1, 1, 1, 1]


def test_fail_fast_starts_nothing_more_and_interrupts_the_rest(sweep: Callable) -> None:
    manifest, runner, starts = sweep("failed", "ok", "ok", n_jobs=2, fail_fast=True)
    starts[1].command[-1] = "30"
    runner.run(starts)
    assert statuses(manifest) == ["failed", "interrupted", "pending"]


def test_jobs_run_side_by_side_on_cores_of_their_own(sweep: Callable, tmp_path: Path) -> None:
    _, runner, starts = sweep("ok", "ok", n_jobs=2, seconds=1.0)
    runner.run(starts)
    first, second = record(tmp_path, 0), record(tmp_path, 1)
    assert max(first["started"], second["started"]) < min(first["ended"], second["ended"])
    cores = len(os.sched_getaffinity(0))
    assert first["cores"] + second["cores"] == max(cores, 2)
    assert first["environment"]["OMP_NUM_THREADS"] == str(first["cores"])


def test_a_job_that_is_ended_before_it_records_has_not_failed(sweep: Callable, tmp_path: Path) -> None:
    manifest, runner, starts = sweep("failed", "ok", n_jobs=2, fail_fast=True)
    starts[1].command[2] = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_DFL); time.sleep(30)"
    runner.run(starts)
    assert statuses(manifest) == ["failed", "interrupted"]
    assert manifest.jobs[1].error is None


def test_jobs_end_where_the_shell_has_them_ignore_ctrl_c(sweep: Callable) -> None:
    """A sweep that a script starts with `&` and ends with `kill`."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    timer = threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGTERM))
    try:
        manifest, runner, starts = sweep("ok", seconds=30)
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            runner.run(starts)
    finally:
        signal.signal(signal.SIGINT, before)
        timer.join()
    assert time.monotonic() - began < 20
    assert statuses(manifest) == ["interrupted"]


def test_an_interrupt_lets_jobs_record_and_is_raised(sweep: Callable) -> None:
    manifest, runner, starts = sweep("ok", "ok", "ok", n_jobs=2, seconds=30)
    timer = threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        runner.run(starts)
    timer.join()
    assert time.monotonic() - began < 20
    assert statuses(manifest) == ["interrupted", "interrupted", "pending"]


def test_b80_nothing_of_another_run_reaches_a_job() -> None:
    base = dict.fromkeys(ONE_RUN_ONLY, "x") | {"WANDB_API_KEY": "k", "HOME": "/h"}
    found = job_environment(Slot(cores=frozenset({0}), device="3"), sweep="s", number=4, base=base)
    assert not set(ONE_RUN_ONLY) & found.keys()
    assert (found["WANDB_API_KEY"], found["HOME"], found["CUDA_VISIBLE_DEVICES"]) == ("k", "/h", "3")
    assert (found["COMPOSER_RL_SWEEP"], found["COMPOSER_RL_SWEEP_JOB"]) == ("s", "4")


def test_what_places_a_job_in_a_sweep_does_not_reach_its_children() -> None:
    """A run that a job starts is no job of the sweep, and the sweep is not its parent."""
    code = (
        "import os; from composer_rl.sweeps.environment import end_with_parent, place_in_sweep\n"
        "end_with_parent(); print(place_in_sweep(), place_in_sweep())\n"
        "print([name for name in os.environ if name.startswith('COMPOSER_RL_SWEEP')])"
    )
    environment = job_environment(Slot(cores=frozenset()), sweep="s", number=4)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "('s', 4) (None, None)\n[]\n"


def test_devices_are_dealt_out_in_turn() -> None:
    assert [slot.device for slot in slots(3, ["0", "1"])] == ["0", "1", "0"]
    assert [slot.device for slot in slots(2, [])] == [None, None]


def test_what_an_attempt_left_is_put_aside(tmp_path: Path) -> None:
    folder = tmp_path / "00-aaaaaaaa"
    for _ in range(2):
        folder.mkdir()
        (folder / "result.json").write_text("{}")
        put_aside(folder)
    assert sorted(path.name for path in (tmp_path / "attempts").iterdir()) == ["00-aaaaaaaa-1", "00-aaaaaaaa-2"]
    put_aside(folder)


def test_a_folder_in_use_is_seen(tmp_path: Path) -> None:
    from composer_rl.config.rundir import RunDirectory

    assert not is_held(tmp_path)
    code = (
        "import sys, pathlib; from composer_rl.config.rundir import RunDirectory\n"
        "held = RunDirectory.hold(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    process.stdout.readline()
    assert is_held(tmp_path)
    process.communicate()
    assert not is_held(tmp_path)
    with RunDirectory.hold(tmp_path):
        pass
