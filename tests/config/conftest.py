"""A command line in this process, in an empty folder, with a user's package and config folder at hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import composer_rl.report.page as page
from composer_rl.cli import main

PROJECT = Path(__file__).parent / "project"
REPOSITORY = Path(__file__).parents[2]
PROBE = ("--config-dir", str(PROJECT / "conf"), "trusted_packages=[lab_pkg]", "stage=probe", "tracker=console")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder; the user's package is importable and the environment is put back afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(PROJECT))
    before = dict(os.environ)
    yield tmp_path
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def train(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`train("po=dapo")` runs the probe stage with these words, without a report, and returns the exit code."""
    monkeypatch.setattr(page, "write_report", lambda run_dir: run_dir)
    return lambda *words: main([*PROBE, *words])


@pytest.fixture
def refused(workplace: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The one line on stderr of a command that is wrong; checks that it leaves nothing behind."""

    def call(*words: str) -> str:
        code = main([*PROBE, *words])
        captured = capsys.readouterr()
        assert code == 2, captured
        assert captured.err.count("\n") == 1, captured.err
        assert captured.err.startswith("error: ")
        assert list(workplace.iterdir()) == []
        return captured.err[len("error: ") : -1]

    return call


@pytest.fixture
def spawn(workplace: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`spawn("seed=3")` starts the probe stage in a process of its own; what still runs is killed at the end."""
    code = "import sys; from composer_rl.cli import main; sys.exit(main(sys.argv[1:]))"
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *PROBE, *words],
            cwd=workplace,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(REPOSITORY)])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def results(workplace: Path) -> Callable[[], list[dict[str, Any]]]:
    """Every result.json below the current folder, in the order of the folders' names."""
    return lambda: [json.loads(file.read_text()) for file in sorted(workplace.rglob("result.json"))]
