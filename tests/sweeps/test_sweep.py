"""A sweep from the command line: which jobs run, which do not run again, and what every launcher agrees on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from composer_rl.cli import main
from composer_rl.config.rundir import RunDirectory
from composer_rl.sweeps.launch import wait_for_leftovers
from composer_rl.sweeps.manifest import JobEntry
from tests.config.conftest import PROBE, PROJECT, REPOSITORY

Sweep = Callable[..., int]


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """`sweep("seed=0,1")` sweeps over the probe stage into multirun/s of an empty current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(PROJECT))
    return lambda *words: main([*PROBE, "-m", "run_name=s", *words])


def manifest(tmp_path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((tmp_path / "multirun" / "s" / "sweep.json").read_text())
    return content


def results(tmp_path: Path) -> list[dict[str, Any]]:
    folders = sorted((tmp_path / "multirun" / "s").glob("[0-9]*/result.json"))
    return [json.loads(path.read_text()) for path in folders]


def test_every_job_is_a_run_of_its_own(sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("seed=1,2", "stage.ending=good,bug") == 1
    plan = manifest(tmp_path)
    assert [job["status"] for job in plan["jobs"]] == ["succeeded", "failed", "succeeded", "failed"]
    assert [job["arm"] for job in plan["jobs"]] == [{"stage.ending": "good"}, {"stage.ending": "bug"}] * 2
    assert [job["seed"] for job in plan["jobs"]] == [1, 1, 2, 2]
    found = results(tmp_path)
    assert len({result["run_id"] for result in found}) == 4
    assert [(result["sweep"], result["job_num"]) for result in found] == [("s", number) for number in range(4)]
    out = capsys.readouterr().out
    assert "2 of 4 jobs succeeded" in out
    assert (tmp_path / "multirun" / "s" / "report.html").is_file()


def test_the_same_command_goes_on(sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("seed=1,2", "stage.ending=good,bug") == 1
    before = results(tmp_path)
    assert sweep("seed=1,2", "stage.ending=good,bug") == 1
    assert results(tmp_path) == before, "what ended is not run again, failed jobs neither"
    assert sweep("seed=1,2", "stage.ending=good,bug", "hydra.launcher.retry_failed=true") == 1
    after = results(tmp_path)
    assert [result == old for result, old in zip(after, before, strict=True)] == [True, False, True, False]
    assert [job["attempts"] for job in manifest(tmp_path)["jobs"]] == [1, 2, 1, 2]
    capsys.readouterr()
    assert sweep("seed=1,2,3", "stage.ending=good", "stage.rate=0.75,0.5") == 0
    plan = manifest(tmp_path)
    numbers = {(job["seed"], job["arm"]["stage.rate"]): job["num"] for job in plan["jobs"]}
    assert (numbers[1, "0.5"], numbers[2, "0.5"]) == (0, 2), "the configuration of an earlier job keeps its folder"
    assert sorted(numbers.values()) == [0, 2, 4, 5, 6, 7], "another configuration is another job"


def test_a_design_in_a_file_and_choices_on_the_command_line(sweep: Sweep, tmp_path: Path) -> None:
    folder = tmp_path / "conf" / "multirun_sweeps"
    folder.mkdir(parents=True)
    (folder / "pairs.yaml").write_text(
        "# @package _global_\nhydra:\n  sweeper:\n    question: Which?\n    zip: {stage.rate: [0.1, 0.2], "
        "stage.notes: [{a: 'x, y'}, {a: z}]}\n    seeds: [7, 8]\n    baseline: {stage.rate: 0.1}\n"
    )
    words = (f"hydra.searchpath=[file://{tmp_path / 'conf'}]", "multirun_sweeps=pairs")
    assert sweep(*words) == 0
    found = [
        (r["config"]["stage"]["rate"], r["config"]["stage"]["notes"]["a"], r["seeds"]["seed"])
        for r in results(tmp_path)
    ]
    assert found == [(0.1, "x, y", 7), (0.1, "x, y", 8), (0.2, "z", 7), (0.2, "z", 8)]
    plan = manifest(tmp_path)
    assert (plan["question"], plan["baseline"]) == ("Which?", {"stage.rate": "0.1"})
    assert sweep(*words, "seed=9") == 0
    assert [job["seed"] for job in manifest(tmp_path)["jobs"]] == [9, 9]


def test_every_job_is_checked_before_the_first_starts(sweep: Sweep, tmp_path: Path, capsys: Any) -> None:
    assert sweep("stage.rate=0.5,-1") == 2
    assert "stage.rate must be at least 0, got -1.0" in capsys.readouterr().err
    assert not list(tmp_path.glob("multirun/s/*"))


@pytest.mark.parametrize(
    ("sweeper", "message"),
    [
        ("gridd: {stage.rate: [0.1]}", "hydra.sweeper has no setting 'gridd'; did you mean grid?"),
        ("zip: {stage.notes: abc}", "zip.stage.notes must list at least one value, got 'abc'"),
        ("seeds: 5", "seeds must list whole numbers, got 5"),
        ("random: {stage.rate: 3}", "random.stage.rate must give low and high, or choices, got 3"),
        ("random: {stage.rate: {low: a, high: b}}", "random.stage.rate: low must be a number, got 'a'"),
        ("{random: {stage.rate: {low: 0, high: 1}}, num_random: 0}", "num_random must be at least 1, got 0"),
        ("{grid: {seed: [1]}, zip: {seed: [2]}}", "seed is in hydra.sweeper.grid and in hydra.sweeper.zip"),
        ("{grid: {stage.rate: [0.1, 0.2]}, baseline: {stage.rate: 0.3}}", "stage.rate=0.3 is none of the values"),
        ("{grid: {stage.rate: [0.1, 0.2]}, baseline: {po: dapo}}", "baseline names po, which the sweep does not vary"),
    ],
)
def test_a_sweep_file_with_a_mistake_is_refused(
    sweep: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str], sweeper: str, message: str
) -> None:
    folder = tmp_path / "conf" / "multirun_sweeps"
    folder.mkdir(parents=True)
    (folder / "wrong.yaml").write_text(f"# @package _global_\nhydra:\n  sweeper:\n    {sweeper}\n")
    assert sweep(f"hydra.searchpath=[file://{tmp_path / 'conf'}]", "multirun_sweeps=wrong") == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "multirun").exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("n_jobs=0", "hydra.launcher.n_jobs must be a whole number, at least 1, got 0"),
        ("n_jobs=many", "hydra.launcher.n_jobs must be a whole number, at least 1, got 'many'"),
        ("fail_fast=maybe", "hydra.launcher.fail_fast must be true or false, got 'maybe'"),
        ("devices='0,1'", "hydra.launcher.devices must be a list such as [0,1], or null, got '0,1'"),
    ],
)
def test_a_setting_of_the_launcher_is_checked(sweep: Sweep, capsys: Any, setting: str, message: str) -> None:
    assert sweep("seed=1,2", f"hydra.launcher.{setting}") == 2
    assert capsys.readouterr().err == f"error: {message}\n"


def test_a_sweep_file_is_not_ignored(sweep: Sweep, tmp_path: Path, capsys: Any) -> None:
    assert main([*PROBE, "multirun_sweeps=seeds"]) == 2
    assert capsys.readouterr().err == "error: multirun_sweeps=seeds describes several runs: add -m\n"
    assert sweep("multirun_sweeps=kl,seeds") == 2
    assert "multirun_sweeps=kl is one of several: a command runs one sweep file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_launchers_agree(sweep: Sweep, tmp_path: Path) -> None:
    assert sweep("seed=1,2", "hydra.launcher.n_jobs=2") == 0
    in_processes = [(r["seeds"], r["config"], r["metrics"], r["status"]) for r in results(tmp_path)]
    assert main([*PROBE, "-m", "run_name=t", "seed=1,2", "hydra/launcher=basic"]) == 0
    folders = sorted((tmp_path / "multirun" / "t").glob("[0-9]*/result.json"))
    found = [json.loads(path.read_text()) for path in folders]
    for run in (config for _, config, _, _ in in_processes):
        run["run_name"] = "t"
    assert [(r["seeds"], r["config"], r["metrics"], r["status"]) for r in found] == in_processes


def test_two_processes_do_not_run_one_sweep(sweep: Sweep, tmp_path: Path, capsys: Any) -> None:
    with RunDirectory.hold(tmp_path / "multirun" / "s"):
        assert sweep("seed=1,2") == 2
    assert "is in use by another run" in capsys.readouterr().err


def test_a_job_that_is_still_ending_is_waited_for(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a kill of the sweep its jobs take seconds to record how far they came."""
    assert sweep("seed=1,2") == 0
    result = next((tmp_path / "multirun" / "s").glob("00-*/result.json"))
    result.unlink()
    held = RunDirectory.hold(result.parent)

    def release_meanwhile(*arguments: Any) -> list[int]:
        threading.Timer(0.5, held.release).start()
        return wait_for_leftovers(*arguments)

    monkeypatch.setattr("composer_rl.sweeps.launch.wait_for_leftovers", release_meanwhile)
    capsys.readouterr()
    assert sweep("seed=1,2") == 0
    assert f"for {result.parent.name}, which another process still holds" in capsys.readouterr().out
    assert [job["attempts"] for job in manifest(tmp_path)["jobs"]] == [2, 1]


def test_a_job_that_another_process_runs_is_left_to_it(tmp_path: Path) -> None:
    entry = JobEntry(num=4, dir="04-00000000", overrides=[], seed=0, arm={})
    with RunDirectory.hold(tmp_path / entry.dir):
        assert wait_for_leftovers([entry], tmp_path, most_s=0.3) == []
    assert wait_for_leftovers([entry], tmp_path, most_s=0.3) == []


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    for words, hint in (([], " and hydra.sweep.dir='"), (["run_name=s"], "\n")):
        code = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "from composer_rl.cli import main; sys.exit(main(sys.argv[1:]))"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code, *PROBE, "-m", *words, "seed=1,2", "stage.ending=wait"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(REPOSITORY)])},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("multirun/*/00-*/waiting")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate()
        assert process.returncode == 130
        assert f"interrupted; go on with the same command{hint}" in out
        shutil.rmtree(tmp_path / "multirun")


def test_arms_are_summed_up_at_the_end(sweep: Sweep, capsys: Any) -> None:
    assert sweep("seed=1,2", "stage.ending=good,bug") == 1
    out = capsys.readouterr().out
    assert "heldout/solve_rate_after\n   0.5000    2 of 2  stage.ending=good\n" in out
    assert "             0 of 2  stage.ending=bug\n2 of 4 jobs succeeded\n" in out


def test_a_killed_sweep_takes_its_jobs_along_and_goes_on(sweep: Sweep, tmp_path: Path) -> None:
    code = "import sys; from composer_rl.cli import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *PROBE, "-m", "run_name=s", "seed=1,2", "stage.ending=wait"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(REPOSITORY)])},
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("multirun/s/00-*/waiting")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    while results(tmp_path)[0]["status"] == "running":
        assert time.monotonic() < deadline, "the job went on without its sweep"
        time.sleep(0.05)
    assert results(tmp_path)[0]["status"] == "interrupted"
    assert [job["status"] for job in manifest(tmp_path)["jobs"]] == ["running", "pending"]


def test_optuna_is_chosen_in_a_sweep_file(sweep: Sweep, tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "conf" / "multirun_sweeps"
    folder.mkdir(parents=True)
    (folder / "search.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /hydra/sweeper: optuna\nhydra:\n  sweeper:\n    n_trials: 2\n"
        "    params: {stage.rate: {low: 0.0, high: 1.0}}\n    seeds: [1, 2]\n"
    )
    assert sweep(f"hydra.searchpath=[file://{tmp_path / 'conf'}]", "multirun_sweeps=search") == 0
    plan = manifest(tmp_path)
    assert [job["seed"] for job in plan["jobs"]] == [1, 2, 1, 2]
    rates = [job["arm"]["stage.rate"] for job in plan["jobs"]]
    assert rates[0] == rates[1] != rates[2] == rates[3]
    assert "best of 2 trials: 0.5000 with stage.rate=" in capsys.readouterr().out
    words = (f"hydra.searchpath=[file://{tmp_path / 'conf'}]", "multirun_sweeps=search")
    assert sweep(*words, "hydra.sweeper.n_trials=3", "hydra.launcher.n_jobs=2") == 0
    assert [job["status"] for job in manifest(tmp_path)["jobs"]] == ["succeeded"] * 6, "those of the first call too"
    assert sweep(*words, "stage.max_steps=2") == 0
    assert "a new search: the earlier one in this folder had another configuration" in capsys.readouterr().out
    assert len(results(tmp_path)) == 10
    assert sweep(*words, "hydra.sweeper.params={stage.rate: {low: -1.0, high: 0.5}}") == 2
    assert "stage.rate must be at least 0, got -1.0" in capsys.readouterr().err, "before the first job"


def test_a_failure_under_joblib_is_counted(sweep: Sweep, tmp_path: Path) -> None:
    words = [*PROBE, "-m", "run_name=t", "stage.ending=good,bug", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    code = "import sys; from composer_rl.cli import main; sys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(REPOSITORY)])}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "1 of 2 jobs succeeded" in done.stdout
    assert (tmp_path / "multirun" / "t" / "report.html").is_file()


def test_joblib_agrees(sweep: Sweep, tmp_path: Path) -> None:
    assert sweep("seed=1,2") == 0
    words = [*PROBE, "-m", "run_name=t", "seed=1,2", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    code = "import sys; from composer_rl.cli import main; sys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(REPOSITORY)])}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    folders = sorted((tmp_path / "multirun" / "t").glob("[0-9]*/result.json"))
    found = [json.loads(path.read_text()) for path in folders]
    ours = results(tmp_path)
    assert [(r["seeds"], r["metrics"], r["status"]) for r in found] == [
        (r["seeds"], r["metrics"], r["status"]) for r in ours
    ]
