"""result.json is whole after every write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from composer_rl.config.record import ResultRecord, package_versions, plain, write_atomically


def test_plain_data() -> None:
    import numpy as np

    data = {1: np.float32(0.5), "a": (1, float("nan"), float("inf")), "p": Path("x"), "i": np.int64(3), "b": True}
    assert plain(data) == {"1": 0.5, "a": [1, None, None], "p": "x", "i": 3, "b": True}
    assert json.loads(json.dumps(plain(data), allow_nan=False)) == plain(data)


def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "result.json"
    write_atomically(file, "old")

    def broken(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_the_error_and_its_traceback_are_recorded_without_secrets(tmp_path: Path) -> None:
    record = ResultRecord(run_id="1", run_name=None, started_at="2030-01-01T00:00:00+00:00")
    try:
        raise RuntimeError("key sk-0123456789abcdef0123")
    except RuntimeError as error:
        record.finish("failed", 1, error)
    record.write(tmp_path)
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["status"] == "failed"
    assert content["error"]["type"] == "RuntimeError"
    assert "test_record.py" in content["error"]["traceback"]
    assert "sk-0123" not in json.dumps(content)


def test_versions_come_without_imports() -> None:
    versions = package_versions()
    assert {"python", "composer_rl", "torch", "trl", "transformers"} <= set(versions)
