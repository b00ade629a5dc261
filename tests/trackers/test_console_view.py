from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from composer_rl.trackers.console_view import (
    LiveBlock,
    ProgressState,
    format_figure,
    format_time,
    plain_line,
    sparkline,
    summary_block,
    wrap_pieces,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def state(**fields) -> ProgressState:
    return ProgressState(
        **({"run_name": "fig", "columns": {"reward": "reward", "held-out": "heldout/solve_rate"}} | fields)
    )


def rendered(renderable, width: int) -> list[str]:
    buffer = io.StringIO()
    Console(file=buffer, width=width, force_terminal=False).print(renderable)
    return buffer.getvalue().splitlines()


def test_time_left_follows_the_recent_pace():
    clock = Clock()
    progress = state(total_steps=10, clock=clock)
    clock.now = 60.0  # Loading a model says nothing about the steps to come.
    progress.update({"heldout/solve_rate": 0.3}, 0)
    assert progress.left_s is None
    for step in range(1, 5):
        clock.now += 3.0
        progress.update({"reward": 0.1}, step)
    assert progress.left_s == pytest.approx(18.0)
    clock.now += 2.0
    assert progress.left_s == pytest.approx(16.0)
    assert progress.elapsed_s == pytest.approx(74.0)


def test_time_left_of_a_resumed_run_counts_its_own_steps_only():
    clock = Clock()
    progress = state(total_steps=100, step=90, clock=clock)
    clock.now = 60.0
    progress.update({"reward": 0.1}, 91)
    assert progress.left_s is None
    clock.now = 62.0
    progress.update({"reward": 0.1}, 92)
    assert progress.left_s == pytest.approx(16.0)


def test_only_what_was_logged_is_shown():
    progress = state(total_steps=None)
    assert progress.figures() == []
    progress.update({"loss": 1.5, "learning_rate": 1e-4}, 1)
    assert progress.figures() == [("loss", "1.500"), ("learning rate", "1.0e-04")]
    progress.update({"reward": 0.5}, 2)
    assert progress.figures() == [("reward", "0.500")]


def test_held_out_shows_where_it_began():
    progress = state(total_steps=None)
    progress.update({"heldout/solve_rate": 0.31}, 0)
    assert progress.figures() == [("held-out", "0.310")]
    progress.update({"heldout/solve_rate": 0.76}, 10)
    assert progress.figures() == [("held-out", "0.310 → 0.760")]


@pytest.mark.parametrize("width", [120, 60, 30, 12])
def test_the_block_fits_every_width(width):
    progress = state(total_steps=150, phase="measuring 200 held-out tasks")
    for step in range(1, 40):
        progress.update({"reward": step / 40, "heldout/solve_rate": 0.5}, step)
    lines = rendered(LiveBlock(state=progress), width)
    assert max(len(line) for line in lines) <= width
    assert lines[0].startswith("step 39/150")


def test_an_unknown_end_has_no_bar():
    progress = state(total_steps=None)
    progress.update({"reward": 0.5}, 3)
    assert rendered(LiveBlock(state=progress), 80)[0] == "step 3  0:00 elapsed"


def test_pieces_are_never_broken():
    pieces = [Text("reward 0.5"), Text("entropy 0.25"), Text("clipped 0.01")]
    assert [line.plain for line in wrap_pieces(pieces, 24)] == ["reward 0.5  entropy 0.25", "clipped 0.01"]
    assert [line.plain for line in wrap_pieces(pieces, 5)] == [piece.plain for piece in pieces]


def test_plain_line_of_a_fresh_run():
    assert plain_line(state(total_steps=10)) == "step 0/10 | 0:00 elapsed"


def test_summary_pairs_before_and_after_and_names_idle_knobs(summary):
    lines = rendered(summary_block(state(total_steps=10), "succeeded", summary, "/runs/a"), 100)
    text = "\n".join(" ".join(line.split()) for line in lines)
    assert "succeeded fig, 0:00" in text
    assert "heldout/solve_rate 0.310 0.760" in text
    assert "heldout/num_tasks 200" in text
    assert "epsilon_high clip_ratio/high_mean 0 never engaged: one update" in text
    assert "temperature entropy 0.4" in text
    assert "run folder /runs/a" in text
    assert "nan" not in text.lower()


def test_summary_of_a_run_that_failed_at_once():
    lines = rendered(summary_block(state(total_steps=10), "failed", {"error": "it [broke]"}, "/runs/a"), 60)
    assert lines[0].startswith("failed")
    assert "it [broke]" in lines


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("reward", 0.5, "0.500"),
        ("reward", float("nan"), "–"),
        ("num_tokens", 1234567.0, "1 234 567"),
        ("completions/mean_length", 53.25, "53.25"),
        ("learning_rate", 5e-05, "5.0e-05"),
        ("kl", 0.0, "0.000"),
        ("time/train_s", 240.24, "240.2 s"),
        ("heldout/num_tasks", 200.0, "200"),
    ],
)
def test_format_figure(name, value, expected):
    assert format_figure(name, value) == expected


@pytest.mark.parametrize(("seconds", "expected"), [(7, "0:07"), (754, "12:34"), (3723, "1:02:03"), (-1, "0:00")])
def test_format_time(seconds, expected):
    assert format_time(seconds) == expected


def test_sparkline():
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([float("nan"), 1.0, 2.0]) == "▁█"
    assert sparkline([]) == ""
