from __future__ import annotations

import json
import subprocess
import sys

import pytest

from composer_rl.report import drawing, figures
from composer_rl.report.collect import Series, load_run
from composer_rl.report.panels import run_panels
from composer_rl.report.statistics import wilson_interval
from tests.report.make_run import write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return load_run(write_run(tmp_path_factory.mktemp("run"), num_steps=60))


@pytest.fixture
def panels(run):
    return {panel.name: panel for panel in run_panels(run)}


def trace(panel, name):
    return next(trace for trace in panel.figure.data if trace.name == name)


def test_the_held_out_band_is_the_wilson_interval(panels):
    band, line = trace(panels["heldout"], "95% interval"), trace(panels["heldout"], "solved at the first attempt")
    assert tuple(line.x) == (0, 15, 30, 45, 60)
    low, high = wilson_interval(line.y[0], 200)
    assert (band.y[-1], band.y[0]) == pytest.approx((low, high), abs=1e-4)


def test_no_band_without_the_number_of_tasks(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "heldout/solve_rate": 0.5}\n')
    figure = figures.heldout_figure(load_run(tmp_path))
    assert [trace.name for trace in figure.data] == ["solved at the first attempt"]
    assert figure.data[0].mode == "lines+markers"


def test_an_error_kind_that_is_not_logged_in_a_step_has_share_zero(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 1, "errors/json_decode": 0.5, "errors/own_kind": 0.1}\n{"step": 2, "errors/own_kind": 0.3}\n'
    )
    figure = figures.errors_figure(load_run(tmp_path))
    assert [trace.name for trace in figure.data] == ["json_decode", "own_kind"]
    assert list(figure.data[0].y) == [0.5, 0.25]  # The running mean of 0.5 and 0.


def test_names_are_no_markup_in_figures(tmp_path):
    line = {"step": 1, "errors/<a href='javascript:1'>x</a>" + "y" * 40: 0.5}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    (found,) = figures.errors_figure(load_run(tmp_path)).data
    assert found.name.startswith("&lt;a href=")
    assert found.name.endswith("…")


def test_clipping_falls_back_to_the_region(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "clip_ratio/region_mean": 0.5}\n')
    assert [trace.name for trace in figures.clipping_figure(load_run(tmp_path)).data] == ["clipped"]


def test_prompts_of_ones_own_show_their_held_out_reward(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "heldout/reward": 0.1}\n{"step": 5, "heldout/reward": 0.4}\n')
    assert [panel.name for panel in run_panels(load_run(tmp_path))] == ["heldout-reward"]


def test_a_run_without_rewards_shows_its_loss(run, tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.0}\n')
    assert [panel.name for panel in run_panels(load_run(tmp_path))] == ["loss"]
    assert figures.loss_figure(run) is None


def test_timings_leave_out_what_overlaps(run, panels):
    assert [name for name, _ in figures.timing_parts(run)] == ["rollout", "grade", "policy", "optimizer", "eval"]
    rollout = trace(panels["time"], "rollout")
    assert len(rollout.x) == 30  # 60 steps in bars of two.
    steps = run.series["time/rollout_s"].values
    assert rollout.y[0] == pytest.approx((steps[0] + steps[1]) / 2)


def test_running_mean():
    series = Series(steps=(1, 2, 3, 4), values=(1.0, 2.0, 3.0, 8.0))
    assert drawing.running_mean(series, 2).values == pytest.approx((1.0, 1.5, 2.5, 5.5))


def test_thinned_keeps_the_ends():
    series = Series(steps=tuple(range(10_000)), values=tuple(map(float, range(10_000))))
    small = drawing.thinned(series, 1500)
    assert len(small) <= 1501
    assert (small.steps[0], small.steps[-1]) == (0, 9999)
    assert drawing.thinned(series, 10_000) is series


def test_plotly_is_imported_late():
    code = "import sys, composer_rl.report.figures, composer_rl.report.page; sys.exit('plotly' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("color", [*drawing.PALETTE, *figures.KIND_COLORS.values()])
def test_colours_stand_out_on_light_and_dark(color):
    assert contrast(color, "#ffffff") >= 3.0
    assert contrast(color, "#171c22") >= 3.0


def contrast(first: str, second: str) -> float:
    """WCAG 2 contrast ratio."""

    def luminance(color: str) -> float:
        channels = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
