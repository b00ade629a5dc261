from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from composer_rl.report.pictures import NoBrowserError
from tests.report.make_run import write_run

SCRIPT = Path(__file__).parents[2] / "docs" / "curve.py"


@pytest.fixture(scope="module")
def curve():
    spec = importlib.util.spec_from_file_location("curve", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_run_without_held_out_figures(curve, tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "reward": 0.5}\n')
    with pytest.raises(ValueError, match="no held-out figures"):
        curve.curve_figure(tmp_path)


def test_a_machine_without_a_browser(curve, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(NoBrowserError, match="apt-get install chromium"):
        curve.write_curve(write_run(tmp_path / "run", num_steps=5), tmp_path / "curve.png")


@pytest.mark.skipif(
    not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    reason="needs Chromium: apt-get install chromium",
)
def test_the_picture_is_small(tmp_path):
    target = tmp_path / "new" / "curve.png"
    subprocess.run([sys.executable, str(SCRIPT), str(write_run(tmp_path / "run")), str(target)], check=True)
    assert target.read_bytes().startswith(b"\x89PNG")
    assert 5_000 < target.stat().st_size < 100_000
