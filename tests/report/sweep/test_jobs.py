from __future__ import annotations

import fcntl
import json

import pytest

from composer_rl.report.sweep.jobs import is_sweep, load_runs, load_sweep
from composer_rl.report.sweep.lock import is_held
from tests.report.make_sweep import ArmPlan, write_sweep

BROKEN = ArmPlan(
    choice={"po": "dapo"}, settings={"po.loss_type": "dapo"},
    status={0: "failed", 1: "running", 2: "absent", 3: "empty", 4: "torn"},
)  # fmt: skip


def statuses(sweep):
    return {job.num: job.status for job in sweep.jobs}


def test_jobs_in_every_state(tmp_path):
    sweep = load_sweep(write_sweep(tmp_path / "s", (BROKEN,), num_steps=4))
    assert statuses(sweep) == {0: "failed", 1: "interrupted", 2: "missing", 3: "running", 4: "unreadable"}
    failed, killed, _, _, torn = sweep.jobs
    assert failed.error == "SandboxError: the template process died"
    assert killed.error == "its process ended without a word"
    assert "result.json cannot be read" in torn.error
    assert torn.seed == 4
    assert all(job.choice == {"po": "dapo"} for job in sweep.jobs)


def test_without_a_plan_the_folders_are_the_jobs(tmp_path):
    sweep = load_sweep(write_sweep(tmp_path / "s", (BROKEN,), num_steps=4, plan=False))
    assert statuses(sweep) == {0: "failed", 1: "interrupted", 3: "unreadable", 4: "unreadable"}
    assert sweep.name == "s"
    assert sweep.command[-1] == "tracker.wandb.api_key=<redacted>"
    assert sweep.created == "2026-03-02T14:05:11.120000+00:00"
    assert sweep.jobs[0].overrides == {"po": "dapo", "max_steps": "24"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"jobs": 3}', '{"jobs": [1, {}, {"dir": null, "num": "x"}]}'])
def test_plans_of_another_shape(tmp_path, text):
    folder = write_sweep(tmp_path, (ArmPlan(choice={"po": "a"}),), num_seeds=2, num_steps=2)
    (folder / "sweep.json").write_text(text)
    assert sum(job.status == "succeeded" for job in load_sweep(folder).jobs) == 2


@pytest.mark.parametrize(
    "result",
    [
        {"status": "succeeded", "config": None, "seeds": None, "overrides": 3, "engagement": None, "metrics": []},
        {"status": "succeeded", "config": {"po": {"_target_": "os.system"}}, "seeds": {"seed": "x"}},
        {"status": "succeeded", "config": {"po": {"_target_": 3}, "list": [1, {"a": 2}]}, "error": ["odd"]},
        {"status": ["odd"]},
        {"status": "exploded"},
    ],
    ids=range(5),
)
def test_results_of_another_shape(tmp_path, result):
    job = tmp_path / "0-00000000"
    job.mkdir()
    (job / "result.json").write_text(json.dumps(result))
    (found,) = load_sweep(tmp_path).jobs
    assert found.status in ("succeeded", "unreadable")


def test_a_run_that_holds_its_lock_runs(tmp_path):
    folder = write_sweep(tmp_path, (ArmPlan(choice={"po": "a"}, status={0: "running"}),), num_seeds=1, num_steps=4)
    (job,) = folder.glob("0-*")
    with (job / ".lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert is_held(job) is True
        assert load_sweep(folder).jobs[0].status == "running"
    assert is_held(job) is False
    (job / ".lock").unlink()
    assert is_held(job) is None
    assert load_sweep(folder).jobs[0].status == "running"


def test_which_folders_are_sweeps(tmp_path):
    folder = write_sweep(tmp_path / "s", (ArmPlan(choice={"po": "a"}),), num_seeds=1, num_steps=2, plan=False)
    assert is_sweep(folder)
    assert not is_sweep(tmp_path)
    (folder / "0-00000000").rename(folder / "first")
    assert not is_sweep(folder)
    assert [job.name for job in load_sweep(folder).jobs] == ["first"]
    with pytest.raises(FileNotFoundError, match="is no sweep folder"):
        load_sweep(tmp_path)


def test_what_is_no_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="is no run folder"):
        load_runs([tmp_path])


def test_the_launcher_knows_how_a_killed_job_ended(tmp_path):
    folder = write_sweep(tmp_path, (ArmPlan(choice={"po": "a"}, status={0: "running"}),), num_seeds=1, num_steps=4)
    plan = json.loads((folder / "sweep.json").read_text())
    plan["jobs"][0] |= {"status": "failed", "error": "killed by signal 9, probably out of memory"}
    (folder / "sweep.json").write_text(json.dumps(plan))
    (job,) = load_sweep(folder).jobs
    assert (job.status, job.error) == ("failed", "killed by signal 9, probably out of memory")
