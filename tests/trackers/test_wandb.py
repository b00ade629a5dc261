"""The real wandb package, offline; its run files are read back."""

from __future__ import annotations

import json
import logging
import os
import struct
import subprocess
import sys
import time

import pytest

from composer_rl.errors import MissingExtraError
from composer_rl.trackers.wandb import WandbTracker

wandb = pytest.importorskip("wandb")


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch, tmp_path):
    """No key and no WANDB_ variable of the machine that runs the tests."""
    for name in [name for name in os.environ if name.startswith("WANDB_") and name != "WANDB_SERVICE"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))


def records(run_dir):
    """The records of the single offline run below `run_dir`, once its last one is written.

    wandb's own process writes the file (LevelDB log framing after a header of 7 bytes) and may still be at it when
    `finish` returns.
    """
    deadline = time.monotonic() + 60
    while True:
        (path,) = run_dir.glob("wandb/offline-run-*/*.wandb")
        found = parse(path.read_bytes())
        if any(record.HasField("exit") for record in found):
            return found
        assert time.monotonic() < deadline, "the run file has no exit record"
        time.sleep(0.05)


def parse(data):
    from wandb.proto import wandb_internal_pb2

    position, parts, found = 7, b"", []
    while position + 7 <= len(data):
        room = 32768 - position % 32768
        if room < 7:
            position += room
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        if position + 7 + length > len(data):
            break
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # A whole record, or the last part of one.
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            found.append(record)
            parts = b""
    return found


def items(updates):
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in updates}


def run_of(run_dir):
    return next(record.run for record in records(run_dir) if record.HasField("run"))


def test_an_offline_run_is_read_back(make_info, tmp_path, summary):
    tracker = WandbTracker(tags=["mine"], job_type="rl")
    tracker.start(make_info(group="alpha_beta", tags=("sweep",)))
    for step in (1, 2):
        tracker.log({"reward": step / 10}, step=step)
    tracker.finish("succeeded", summary)
    run = run_of(tmp_path)
    assert (run.run_id, run.display_name, run.project) == ("id1", "swift-fig", "composer-rl")
    assert (run.run_group, list(run.tags), run.job_type) == ("alpha_beta", ["sweep", "mine"], "rl")
    config = items(run.config.update)
    assert config["po"] == {"epsilon": 0.2, "loss_type": "dr_grpo"}
    all_records = records(tmp_path)
    history = [items(record.history.item) for record in all_records if record.HasField("history")]
    assert [(row["step"], row["reward"]) for row in history] == [(1, 0.1), (2, 0.2)]
    final: dict = {}
    for record in all_records:
        if record.HasField("summary"):
            final |= items(record.summary.update)
    assert final["status"] == "succeeded"
    assert final["heldout/solve_rate_after"] == 0.76
    assert final["engagement/epsilon_high"] == 0.0
    exits = [record.exit.exit_code for record in all_records if record.HasField("exit")]
    assert exits == [0]


@pytest.mark.parametrize(("status", "code"), [("stopped", 0), ("interrupted", 130), ("failed", 1)])
def test_the_exit_code_tells_the_status(make_info, tmp_path, status, code):
    tracker = WandbTracker()
    tracker.start(make_info())
    tracker.finish(status, {"error": {"type": "OSError", "message": "disk full"}})
    assert [record.exit.exit_code for record in records(tmp_path) if record.HasField("exit")] == [code]


def test_two_jobs_of_one_process_are_two_runs(make_info, tmp_path):
    for job in ("one", "two"):
        (tmp_path / job).mkdir()
        tracker = WandbTracker()
        tracker.start(make_info(run_id=job, run_dir=tmp_path / job))
        tracker.log({"reward": 0.5}, step=1)
        tracker.finish("succeeded", {})
    assert [run_of(tmp_path / job).run_id for job in ("one", "two")] == ["one", "two"]


def test_variables_of_an_earlier_job_do_not_reach_this_one(make_info, tmp_path, monkeypatch):
    stale = {
        "WANDB_RUN_ID": "stale",
        "WANDB_NAME": "stale",
        "WANDB_RUN_GROUP": "stale",
        "WANDB_SWEEP_ID": "stale",
        "WANDB_TAGS": "stale",
        "WANDB_JOB_TYPE": "stale",
        "WANDB_DIR": str(tmp_path / "stale"),
        "WANDB_RESUME": "must",
    }
    for name, value in stale.items():
        monkeypatch.setenv(name, value)
    tracker = WandbTracker()
    tracker.start(make_info())
    assert not stale.keys() & os.environ.keys()
    tracker.finish("succeeded", {})
    run = run_of(tmp_path)
    assert (run.run_id, run.display_name, run.run_group, list(run.tags)) == ("id1", "swift-fig", "", [])
    assert "stale" not in str(run)
    assert {name: os.environ.get(name) for name in stale} == stale


def test_the_environment_is_restored_when_wandb_cannot_start(make_info, monkeypatch):
    monkeypatch.setenv("WANDB_RUN_ID", "stale")

    def refuse(**_):
        raise wandb.Error("no")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(wandb.Error):
        WandbTracker(mode="offline").start(make_info())
    assert os.environ["WANDB_RUN_ID"] == "stale"


def test_auto_goes_offline_with_a_warning_when_online_fails(make_info, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    original = wandb.init
    asked = []

    def init(**arguments):
        asked.append(arguments["mode"])
        if arguments["mode"] == "online":
            raise wandb.errors.CommError("unreachable")
        return original(**arguments)

    monkeypatch.setattr(wandb, "init", init)
    tracker = WandbTracker()
    with caplog.at_level(logging.WARNING):
        tracker.start(make_info())
    tracker.finish("succeeded", {})
    assert asked == ["online", "offline"]
    assert "wandb cannot go online (unreachable)" in caplog.text
    asked.clear()
    with pytest.raises(wandb.errors.CommError):
        WandbTracker(mode="online").start(make_info())
    assert asked == ["online"]


@pytest.mark.parametrize(
    ("mode", "environment", "expected"),
    [
        ("auto", {}, "offline"),
        ("auto", {"WANDB_API_KEY": "k"}, "online"),
        ("auto", {"WANDB_API_KEY": "k", "WANDB_MODE": "disabled"}, "disabled"),
        ("auto", {"WANDB_MODE": "online"}, "online"),
        ("auto", {"WANDB_MODE": "offline", "WANDB_API_KEY": "k"}, "offline"),
        ("offline", {"WANDB_MODE": "online", "WANDB_API_KEY": "k"}, "offline"),
        ("online", {}, "online"),
    ],
)
def test_mode(mode, environment, expected, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert WandbTracker(mode=mode)._resolved_mode() == expected


def test_a_login_in_netrc_counts_as_a_key(tmp_path, monkeypatch):
    path = tmp_path / "netrc"
    path.write_text("machine api.wandb.ai\n  login user\n  password secret\n")
    path.chmod(0o600)
    monkeypatch.setenv("NETRC", str(path))
    assert WandbTracker()._resolved_mode() == "online"
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert WandbTracker()._resolved_mode() == "offline"


def test_disabled_does_nothing(make_info, tmp_path):
    tracker = WandbTracker(mode="disabled")
    tracker.start(make_info())
    tracker.log({"reward": 0.5}, step=1)
    tracker.finish("succeeded", {})
    assert list(tmp_path.glob("wandb*")) == []


def test_the_report_becomes_an_artifact(make_info, tmp_path):
    (tmp_path / "report.html").write_text("<p>report</p>")
    tracker = WandbTracker(log_report=True)
    tracker.start(make_info())
    tracker.finish("succeeded", {})
    artifacts = [record.artifact for record in records(tmp_path) if record.HasField("artifact")]
    assert [(artifact.name, artifact.type) for artifact in artifacts] == [("report-id1", "report")]


def test_a_missing_package_names_the_extra(make_info, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtraError, match=r"composer-rl\[wandb\]"):
        WandbTracker(mode="offline").start(make_info())


def test_trackers_are_built_without_their_packages():
    code = (
        "import sys\n"
        "from composer_rl.trackers import composite, console, jsonl, tensorboard, trackio, wandb\n"
        "composite.TrackerSet(trackers={'wandb': wandb.WandbTracker(), 't': tensorboard.TensorboardTracker(),"
        " 'o': trackio.TrackioTracker()})\n"
        "heavy = {'wandb', 'torch', 'tensorboard', 'trackio', 'rich'} & set(sys.modules)\n"
        "sys.exit(' '.join(sorted(heavy)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"project": ""}, "project must be a non-empty name"),
        ({"mode": "on"}, "mode must be auto, online, offline or disabled, got 'on'"),
        ({"init_timeout_s": 0}, "init_timeout_s must be above 0, got 0"),
        ({"finish_timeout_s": -1}, "finish_timeout_s must be at least 0, got -1"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(ValueError, match=message):
        WandbTracker(**fields)
