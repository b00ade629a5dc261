from __future__ import annotations

import json

import pytest

from composer_rl.report.collect import Series, load_run
from tests.report.make_run import write_run


def test_a_whole_run(tmp_path):
    run = load_run(write_run(tmp_path, num_steps=30))
    assert run.status == "succeeded"
    assert run.problems == []
    assert run.last_step == 30
    assert run.duration_s == 257.3
    assert run.series["reward"].steps == tuple(range(1, 31))
    assert run.series["heldout/solve_rate"].steps == (0, 15, 30)
    assert run.metrics["heldout/num_tasks"] == 200.0
    assert run.num_rollouts == len(run.rollouts) == 30 * 3 + 3 * 4
    assert [row["engaged"] for row in run.engagement] == [True, False, None]


def test_lines_of_one_step_are_merged_and_the_later_wins(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 2, "time_s": 9, "reward": 0.4}\n'
        '{"step": 1, "time_s": 5, "reward": 0.1, "loss": null}\n'
        '{"step": 1, "time_s": 6, "heldout/solve_rate": 0.3}\n'
        '{"step": 1, "time_s": 7, "reward": 0.2}\n'
    )
    run = load_run(tmp_path)
    assert run.series["reward"] == Series(steps=(1, 2), values=(0.2, 0.4))
    assert run.series["heldout/solve_rate"] == Series(steps=(1,), values=(0.3,))
    assert "loss" not in run.series
    assert run.elapsed == Series(steps=(1, 2), values=(7.0, 9.0))
    assert run.duration_s == 9.0


def test_a_cut_last_line_and_foreign_lines_are_left_out_and_named(tmp_path):
    write_run(tmp_path, num_steps=4)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('[1, 2]\n{"no step": 1}\n\n{"step": "5"}\n{"step": 5, "rew')
    with (tmp_path / "rollouts.jsonl").open("a") as file:
        file.write('{"step": 5, "turns": "none"}\n')
    run = load_run(tmp_path)
    assert run.last_step == 4
    assert run.problems == [
        "metrics.jsonl: 4 lines could not be read and were left out.",
        "rollouts.jsonl: one line could not be read and was left out.",
    ]


def test_missing_files_are_named(tmp_path):
    (tmp_path / "result.json").write_text(json.dumps({"status": "failed", "metrics": None, "engagement": None}))
    run = load_run(tmp_path)
    assert run.problems == ["metrics.jsonl is missing.", "rollouts.jsonl is missing."]
    assert (run.status, run.metrics, run.engagement, run.duration_s, run.last_step) == ("failed", {}, [], None, 0)


@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_a_broken_result_is_named(tmp_path, content):
    write_run(tmp_path, num_steps=2)
    (tmp_path / "result.json").write_text(content)
    run = load_run(tmp_path)
    assert run.result == {}
    assert run.status == "unknown"
    assert len(run.problems) == 1
    assert run.problems[0].startswith("result.json")


def test_figures_that_are_no_numbers_are_left_out(tmp_path):
    (tmp_path / "result.json").write_text(
        '{"metrics": {"a": 1, "b": null, "c": "x", "d": true}, "engagement": [1, {}]}'
    )
    run = load_run(tmp_path)
    assert run.metrics == {"a": 1.0}
    assert run.engagement == [{}]


def test_long_files_keep_both_ends(tmp_path):
    (tmp_path / "rollouts.jsonl").write_text("".join(f'{{"step": {step}, "turns": []}}\n' for step in range(10)))
    run = load_run(tmp_path, kept_rollouts=3)
    assert [record["step"] for record in run.rollouts] == [0, 1, 2, 7, 8, 9]
    assert run.num_rollouts == 10


def test_what_is_no_run_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="is no run folder"):
        load_run(tmp_path)
    with pytest.raises(FileNotFoundError):
        load_run(tmp_path / "absent")


def test_series():
    series = Series(steps=(1, 2, 4), values=(1.0, 2.0, 6.0))
    assert (series.at(2), series.at(3)) == (2.0, None)
    assert series.ends(2) == (1.5, 4.0)
    assert series.ends(10) == (3.0, 3.0)
    with pytest.raises(ValueError, match="empty series"):
        Series(steps=(), values=()).ends(1)
