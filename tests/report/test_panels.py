from __future__ import annotations

import pytest

from composer_rl.report.collect import load_run
from composer_rl.report.panels import describe, run_panels
from tests.report.make_run import write_run


@pytest.fixture(scope="module")
def panels(tmp_path_factory):
    run = load_run(write_run(tmp_path_factory.mktemp("run"), num_steps=60))
    return {panel.name: panel for panel in run_panels(run)}


def test_a_whole_run_has_every_panel(panels):
    assert list(panels) == [
        "heldout", "reward", "errors", "entropy", "clipping", "length", "signal", "optimisation", "time"
    ]  # fmt: skip
    assert sum(not panel.wide for panel in panels.values()) % 2 == 0


def test_an_empty_run_has_none(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    assert run_panels(load_run(tmp_path)) == []


def test_figures_in_words(panels):
    words = describe(panels["heldout"])
    assert words.startswith("Held-out tasks. solved at the first attempt: from 0.3")
    assert "95% interval" not in words
