"""A run is repeated from its result.json alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_rl.cli import main
from composer_rl.config import rerun
from composer_rl.config.build import resolve

Train = Callable[..., int]


@pytest.fixture
def original(train: Train, workplace: Path) -> Path:
    assert train("hydra.run.dir=original", "po=dapo", "seed=7", "stage.rate=0.75", "stage.notes={a: '\\${x} 5$'}") == 0
    return workplace / "original" / "result.json"


def config_of(folder: str) -> dict[str, Any]:
    return json.loads((Path(folder) / "result.json").read_text())["config"]


def test_the_same_configuration_in_a_new_folder(original: Path) -> None:
    assert main([f"rerun={original}", "hydra.run.dir=again"]) == 0
    before, after = config_of("original"), config_of("again")
    assert after.pop("rerun") == str(original)
    assert before.pop("rerun") is None
    assert before == after
    assert json.loads(Path("again/result.json").read_text())["choices"]["po"] == "dapo"


def test_a_run_folder_names_its_result(original: Path) -> None:
    assert main([f"rerun={original.parent}", "hydra.run.dir=again"]) == 0
    assert config_of("again")["seed"] == 7


def test_overrides_go_on_top(original: Path) -> None:
    assert main([f"rerun={original}", "hydra.run.dir=again", "stage.rate=0.1", "seed=8", "po=grpo"]) == 0
    config = config_of("again")
    assert (config["stage"]["rate"], config["seed"], config["po"]["loss_type"]) == (0.1, 8, "grpo")
    assert config["po"].keys() != config_of("original")["po"].keys()
    assert config["stage"]["notes"] == config_of("original")["stage"]["notes"]


def test_a_group_can_be_left_out(original: Path) -> None:
    assert main([f"rerun={original}", "hydra.run.dir=again", "reward=null"]) == 0
    assert "reward" not in config_of("again")


def test_todays_yaml_files_do_not_get_in(original: Path) -> None:
    record = json.loads(original.read_text())
    record["config"]["po"]["epsilon"] = 0.123
    record["choices"]["po"] = "no_longer_there"
    original.write_text(json.dumps(record))
    assert main([f"rerun={original}", "hydra.run.dir=again"]) == 0
    assert config_of("again")["po"]["epsilon"] == 0.123


def test_a_sweep_over_a_repeated_run(original: Path, workplace: Path) -> None:
    assert main([f"rerun={original}", "-m", "run_name=seeds", "seed=1,2"]) == 0
    found = [json.loads(file.read_text())["config"] for file in sorted(workplace.glob("multirun/seeds/*/result.json"))]
    assert [(config["seed"], config["stage"]["rate"]) for config in found] == [(1, 0.75), (2, 0.75)]


def test_cfg_shows_what_would_be_repeated(original: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main([f"rerun={original}", "--cfg", "job"]) == 0
    assert "rate: 0.75" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": "2.0"}, "has schema_version 2.0, this is 1.0"),
        ({"package_versions": {"composer_rl": "9.0.0"}}, "has composer_rl version 9.0.0"),
        ({"config": None}, "is no result.json of a run"),
    ],
)
def test_records_of_other_versions_are_refused(
    original: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], message: str
) -> None:
    original.write_text(json.dumps({**json.loads(original.read_text()), **change}))
    capsys.readouterr()
    assert main([f"rerun={original}", "hydra.run.dir=again"]) == 2
    assert message in capsys.readouterr().err
    assert not Path("again").exists()


def test_other_packages_are_a_warning(original: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(original.read_text())
    record["package_versions"]["trl"] = "0.1"
    record["git_revision"] = "abc"
    original.write_text(json.dumps(record))
    capsys.readouterr()
    assert main([f"rerun={original}", "hydra.run.dir=again"]) == 0
    warning = capsys.readouterr().err
    assert "git revision was abc" in warning
    assert "trl was 0.1, is " in warning


def test_a_secret_must_be_given_again(train: Train, capsys: pytest.CaptureFixture[str]) -> None:
    assert train("hydra.run.dir=original", "stage.notes={api_key: hunter22}") == 0
    capsys.readouterr()
    assert main(["rerun=original", "hydra.run.dir=again"]) == 2
    assert "stage.notes.api_key was left out of result.json as a secret" in capsys.readouterr().err
    assert main(["rerun=original", "hydra.run.dir=again", "stage.notes.api_key=hunter22"]) == 0


def test_a_broken_file(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("result.json").write_text("{")
    assert main(["rerun=result.json"]) == 2
    assert "is not valid JSON" in capsys.readouterr().err


def test_rerun_and_resume_exclude_each_other(original: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"rerun={original}", "resume=true", "hydra.run.dir=original"]) == 2
    assert "give only one of them" in capsys.readouterr().err


def test_resume_takes_the_stored_configuration(original: Path) -> None:
    assert main(["resume=true", "hydra.run.dir=original", "max_steps=5"]) == 0
    config = config_of("original")
    assert (config["seed"], config["stage"]["rate"], config["max_steps"]) == (7, 0.75, 5)
    record = json.loads(original.read_text())
    assert (record["resumed"], record["choices"]["po"]) == (1, "dapo")
    assert json.loads(Path("original/probe.json").read_text())["resume"] is True


@given(st.text("\\\\${}ab.:", max_size=12))
def test_stored_texts_come_back_as_they_were(text: str) -> None:
    """Whatever a run's resolved text was, escaping and resolving gives it again."""
    assert resolve({"a": rerun._escaped(text)}) == {"a": text}


def test_rerun_and_resume_are_no_settings_of_a_file(train: Train, workplace: Path, capsys) -> None:
    folder = workplace / "more" / "debug"
    folder.mkdir(parents=True)
    (folder / "again.yaml").write_text("# @package _global_\nrerun: some/result.json\n")
    assert train("hydra.searchpath=[more]", "debug=again") == 2
    assert "rerun is only read from the command line" in capsys.readouterr().err
