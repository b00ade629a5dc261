"""Removal of hostile folders."""

from __future__ import annotations

import os
from pathlib import Path

from composer_rl.sandboxes.template import cleanup


def hostile(folder: Path) -> Path:
    """A folder nested far beyond PATH_MAX, with closed folders, and symlinks that lead out."""
    folder.mkdir()
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    (folder / "link").symlink_to(outside)
    (folder / "dangling").symlink_to("/nowhere")
    (folder / "closed").mkdir()
    (folder / "closed" / "file").write_text("x")
    (folder / "closed").chmod(0)
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        for _ in range(300):
            os.mkdir("d" * 100)
            os.chdir("d" * 100)
    finally:
        os.fchdir(here)
        os.close(here)
    return outside


def test_remove_tree(tmp_path: Path) -> None:
    """Everything below goes, nothing beside it."""
    outside = hostile(tmp_path / "scratch")
    cleanup.remove_tree(str(tmp_path / "scratch"))
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (outside / "kept").exists()


def test_empty_folder(tmp_path: Path) -> None:
    """The folder itself stays."""
    hostile(tmp_path / "scratch")
    cleanup.empty_folder(str(tmp_path / "scratch"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "scratch"]
    assert list((tmp_path / "scratch").iterdir()) == []
