"""Which library folders a candidate sees."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from composer_rl.sandboxes.template import library


def test_folders_cover_the_standard_library() -> None:
    """The standard library lies in one of the folders, and none lies in another."""
    folders = library.folders()
    assert any((library.standard_library() + "/").startswith(folder + "/") for folder in folders)
    assert not any(a != b and a.startswith(b + "/") for a in folders for b in folders)
    assert (
        not any((os.path.realpath(path) + "/").startswith("/home/") for path in folders) or "/home/" in sys.base_prefix
    )


def test_installed_packages_are_hidden(tmp_path: Path) -> None:
    """Folders of installed packages are found, and left out of what is granted."""
    for path in ("python3.11/site-packages/a", "python3/dist-packages", "python3.11/json", "other"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "python3.11" / "os.py").write_text("")
    (tmp_path / "link").symlink_to("other")
    hidden = library.hidden(str(tmp_path))
    assert sorted(os.path.relpath(path, tmp_path) for path in hidden) == [
        "python3.11/site-packages",
        "python3/dist-packages",
    ]
    parts = [os.path.relpath(path, tmp_path) for path in library.readable_parts(str(tmp_path), hidden)]
    assert parts == ["other", "python3.11/json", "python3.11/os.py"]
    assert library.readable_parts(str(tmp_path / "other"), hidden) == [str(tmp_path / "other")]
