from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from composer_rl.errors import MissingExtraError
from composer_rl.trackers.trackio import TrackioTracker

CODE = """
import json, pathlib, sys
from composer_rl.trackers.base import RunInfo
from composer_rl.trackers.trackio import TrackioTracker

def run(run_id, resume_step=None):
    tracker = TrackioTracker(project="demo")
    tracker.start(RunInfo(run_id=run_id, run_name="fig", run_dir=pathlib.Path(sys.argv[1]), group="sweep",
                          config={"po": {"epsilon": 0.2}}, resume_step=resume_step))
    for step in (1, 2):
        tracker.log({"reward": step / 10}, step=step)
    tracker.finish("succeeded", {"metrics": {"heldout/solve_rate_after": 0.76}})

run("a")
run("b")
import trackio
from trackio.sqlite_storage import SQLiteStorage
runs = [run.name for run in trackio.Api().runs("demo")]
rows = {name: SQLiteStorage.get_logs("demo", name) for name in runs}
json.dump({"rows": rows, "config": SQLiteStorage.get_run_config("demo", "fig a")}, sys.stderr)
"""


def test_runs_are_read_back_and_nothing_is_printed(tmp_path):
    pytest.importorskip("trackio", reason="the trackio extra is not installed")
    # In a process of its own: trackio reads TRACKIO_DIR once, when it is imported.
    environment = os.environ | {"TRACKIO_DIR": str(tmp_path / "store")}
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout == ""
    found = json.loads(done.stderr)
    assert set(found["rows"]) == {"fig a", "fig b"}
    for rows in found["rows"].values():
        assert [(row["step"], row["reward"]) for row in rows if "reward" in row] == [(1, 0.1), (2, 0.2)]
        assert rows[-1]["heldout/solve_rate_after"] == 0.76
        assert rows[-1]["status"] == "succeeded"
    assert found["config"]["po"] == {"epsilon": 0.2}
    assert found["config"]["_Group"] == "sweep"


def test_a_missing_package_names_the_extra(make_info, monkeypatch):
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(MissingExtraError, match=r"composer-rl\[trackio\]"):
        TrackioTracker().start(make_info())


@pytest.mark.parametrize("project", ["", "a b", "../x"])
def test_a_project_name_that_trackio_would_change(project):
    with pytest.raises(ValueError, match="project must be made of"):
        TrackioTracker(project=project)
