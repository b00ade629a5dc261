"""The wheel holds everything that `composer-rl train` needs, conf/ included."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from composer_rl.config.paths import yaml_files

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the sources, without the network."""
    source = tmp_path_factory.mktemp("source") / "composer"
    ignore = shutil.ignore_patterns(
        ".git", ".venv", "build", "dist", "*.egg-info", "outputs", "multirun", "__pycache__"
    )
    shutil.copytree(REPOSITORY, source, symlinks=True, ignore=ignore)
    (source / "experiments" / "arxiv_0").mkdir(exist_ok=True)
    (source / "experiments" / "arxiv_0" / "main.yaml").write_text("# @package _global_\n# a recipe\nseed: 3\n")
    target = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            str(source),
            "-w",
            target,
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (built,) = target.glob("*.whl")
    return built


def test_every_file_is_in_the_wheel(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    conf = {f"composer_rl/conf/{file.relative_to(REPOSITORY / 'conf')}" for file in yaml_files(REPOSITORY / "conf")}
    assert conf <= packed
    assert "composer_rl/conf/experiments/arxiv_0/main.yaml" in packed
    tracked = subprocess.run(
        ["git", "ls-files", "composer_rl"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    ).stdout.split()
    assert [name for name in tracked if (REPOSITORY / name).exists() and name not in packed] == []
    assert not [name for name in packed if "test" in Path(name).parts or name.endswith((".pyc", ".gitkeep"))]


def test_the_wheel_works_from_any_folder(wheel: Path, tmp_path: Path) -> None:
    unpacked = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(unpacked)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code = "import composer_rl, sys; from composer_rl.cli import console; print(composer_rl.__file__); " + (
        "sys.exit(console(['train', '--cfg', 'job', 'experiments=arxiv_0/main']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(unpacked))
    assert "seed: 3" in done.stdout
    assert list(elsewhere.iterdir()) == []


def test_links_in_conf_are_committed_as_links() -> None:
    for name in ("experiments", "multirun_sweeps"):
        link = REPOSITORY / "conf" / name
        assert link.is_symlink()
        assert os.readlink(link) == f"../{name}"


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_help_lists_every_target() -> None:
    listed = subprocess.run(["make", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    for target in ("install", "train", "test", "lint", "types", "format"):
        assert f"make {target} " in listed


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_installs_again_only_when_the_requirements_change(tmp_path: Path) -> None:
    """With a stamp newer than its requirements, nothing is left to do but the command itself."""
    for name in ("Makefile", "pyproject.toml", "setup.py", "constraints.txt"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "installed.stamp").touch()
    planned = subprocess.run(["make", "-n", "train"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "train.py" in planned
    assert "pip" not in planned
    later = (tmp_path / ".venv" / "installed.stamp").stat().st_mtime + 10
    os.utime(tmp_path / "constraints.txt", (later, later))
    planned = subprocess.run(["make", "-n", "train"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "install torch -c constraints.txt" in planned
