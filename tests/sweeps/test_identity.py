"""A job is told by what it computes."""

from __future__ import annotations

from pathlib import Path

from composer_rl.sweeps.identity import config_hash, folder_name, folder_of, next_number


def test_names_and_trackers_do_not_make_another_job() -> None:
    config = {"seed": 1, "po": {"epsilon": 0.2}}
    named = {"po": {"epsilon": 0.2}, "run_name": "x", "tags": ["a"], "resume": True, "tracker": {"a": 1}, "seed": 1}
    assert config_hash(named) == config_hash(config)
    assert config_hash(config | {"seed": 2}) != config_hash(config)
    assert config_hash({"seed": 1, "po": {"epsilon": 0.3}}) != config_hash(config)


def test_a_job_keeps_its_folder_and_new_ones_get_free_numbers(tmp_path: Path) -> None:
    assert next_number(tmp_path) == 0
    (tmp_path / folder_name(3, "0a1b2c3d")).mkdir()
    (tmp_path / "03-0a1b2c3d.log").touch()
    (tmp_path / "attempts" / "05-0a1b2c3d-1").mkdir(parents=True)
    assert folder_of(tmp_path, "0a1b2c3d") == tmp_path / "03-0a1b2c3d"
    assert folder_of(tmp_path, "ffffffff") is None
    assert next_number(tmp_path) == 4
