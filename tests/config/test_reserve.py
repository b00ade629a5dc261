"""A full disk is recognised, and the last record of a run still fits on it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from composer_rl.config.reserve import RESERVE_NAME, is_disk_full, release_space, reserve_space


def test_the_reserve_holds_room_until_it_is_released(tmp_path: Path) -> None:
    reserve_space(tmp_path)
    assert (tmp_path / RESERVE_NAME).stat().st_size >= 64 * 1024
    release_space(tmp_path)
    release_space(tmp_path)
    assert list(tmp_path.iterdir()) == []


def chained(inner: BaseException) -> RuntimeError:
    try:
        try:
            raise inner
        except BaseException as error:
            raise RuntimeError("writing failed") from error
    except RuntimeError as outer:
        return outer


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (chained(OSError(errno.ENOSPC, "x")), True),
        (RuntimeError("I/O error: No space left on device (os error 28)"), True),
        (OSError(errno.EACCES, "Permission denied"), False),
        (ValueError("out of memory"), False),
        (KeyboardInterrupt(), False),
    ],
    ids=repr,
)
def test_a_full_disk_is_told_from_other_errors(error: BaseException, full: bool, tmp_path: Path) -> None:
    assert is_disk_full(error, tmp_path) is full


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 7 MB, which holds a run's start but not its checkpoints."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=7m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("no permission to mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_run_on_a_full_disk_says_so_and_is_resumed_when_there_is_room(small_disk: Path) -> None:
    def train(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "train.py", f"hydra.run.dir={small_disk / 'run'}", "tracker=console", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])

    small = ["max_steps=4", "stage.save_every=1", "stage.num_heldout=4", "rollout.prompts_per_rollout=1"]
    failed = train(*small)
    assert failed.returncode == 1
    assert failed.stderr.strip().splitlines()[-1].startswith("error: no space left on the disk of")
    record = json.loads((small_disk / "run" / "result.json").read_text())
    assert record["status"] == "failed"
    assert record["error"]["type"] == "DiskFullError"
    subprocess.run(["mount", "-o", "remount,size=60m", str(small_disk)], check=True)
    assert train("resume=true").returncode == 0
    record = json.loads((small_disk / "run" / "result.json").read_text())
    assert record["status"] == "succeeded"
    assert record["metrics"]["train/steps"] == 4
    assert not os.path.exists(small_disk / "run" / RESERVE_NAME)
