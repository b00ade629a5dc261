from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest

from composer_rl.errors import RunDirectoryError
from composer_rl.trackers.jsonl import JsonlTracker, drop_lines_after


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_are_flat_and_flushed(make_info, tmp_path):
    tracker = JsonlTracker()
    tracker.start(make_info())
    tracker.log({"reward": 0.5, "heldout/solve_rate": 0.25}, step=1)
    (line,) = lines(tmp_path / "metrics.jsonl")  # Read before finish: nothing waits in a buffer.
    assert line.pop("time_s") >= 0
    assert line == {"step": 1, "reward": 0.5, "heldout/solve_rate": 0.25}
    tracker.finish("succeeded", {})


def test_not_finite_becomes_null_and_reserved_names_stay(make_info, tmp_path):
    tracker = JsonlTracker()
    tracker.start(make_info())
    tracker.log({"a": math.nan, "b": math.inf, "c": -math.inf, "step": 99.0}, step=7)
    tracker.finish("succeeded", {})
    (line,) = lines(tmp_path / "metrics.jsonl")
    assert (line["a"], line["b"], line["c"], line["step"]) == (None, None, None, 7)


def test_a_new_run_refuses_another_runs_metrics(make_info, tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    with pytest.raises(RunDirectoryError, match="resume=true"):
        JsonlTracker().start(make_info())


def test_resume_drops_what_lies_beyond_the_checkpoint(make_info, tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text(
        '{"step": 1, "time_s": 100.0, "reward": 0.1}\n'
        '{"step": 2, "time_s": 200.0, "reward": 0.2}\n'
        '{"step": 3, "time_s": 300.0, "reward": 0.3}\n'
        '{"step": 4, "time_s": 40'
    )
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_text('{"step": 2, "split": "train"}\n{"step": 4, "split": "train"}\n')
    tracker = JsonlTracker()
    tracker.start(make_info(resume_step=2))
    tracker.log({"reward": 0.35}, step=3)
    tracker.finish("succeeded", {})
    kept = lines(metrics)
    assert [(line["step"], line["reward"]) for line in kept] == [(1, 0.1), (2, 0.2), (3, 0.35)]
    assert kept[-1]["time_s"] >= 200.0  # The clock goes on from the last line that stayed.
    assert [line["step"] for line in lines(rollouts)] == [2]


def test_a_last_line_without_newline_is_kept_and_closed(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "time_s": 1.5}')
    assert drop_lines_after(path, 5) == 1.5
    assert path.read_bytes() == b'{"step": 1, "time_s": 1.5}\n'


def test_nothing_to_drop_leaves_the_file_alone(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n')
    before = path.stat().st_ino
    assert drop_lines_after(path, 2) == 0.0
    assert path.stat().st_ino == before
    assert drop_lines_after(tmp_path / "absent.jsonl", 2) == 0.0


def test_log_outside_a_run_is_an_error():
    with pytest.raises(RuntimeError, match="before start"):
        JsonlTracker().log({"a": 1.0}, step=1)


def test_a_killed_process_loses_nothing(tmp_path):
    code = (
        "import os, pathlib, sys\n"
        "from composer_rl.trackers.base import RunInfo\n"
        "from composer_rl.trackers.jsonl import JsonlTracker\n"
        "tracker = JsonlTracker()\n"
        "tracker.start(RunInfo(run_id='a', run_name='a', run_dir=pathlib.Path(sys.argv[1]), config={}))\n"
        "for step in range(5): tracker.log({'reward': 1.0}, step=step)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == -9
    assert len(lines(tmp_path / "metrics.jsonl")) == 5
