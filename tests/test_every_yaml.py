"""Every YAML in conf/ is composed, checked and built, exactly as a user would choose it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from composer_rl.config import paths, resolvers
from composer_rl.config.build import prepare
from composer_rl.config.paths import Option, conf_dir, yaml_files
from composer_rl.run import GROUP_BASES, prepare_run

GLOBAL_GROUPS = ("debug", "experiments", "multirun_sweeps")

REQUIRED: dict[str, list[str]] = {
    "env=dataset": ["env.path=prompts.jsonl"],
    "model=hf": ["model.name=a/model"],
    "reward=function": ["reward.function._target_=my_rewards.length", "trusted_packages=[my_rewards]"],
}
"""What a user must give besides the option itself."""

NESTED_AT: dict[str, str] = {"loss/channel": "loss.channels.example", "hint/layer": "hint.layers.example"}
"""Where an option of a nested group goes in the configuration."""

FILES = sorted(yaml_files(conf_dir()))
OPTIONS = [
    option
    for group, options in paths.catalog().options.items()
    for option in options.values()
    if option.file.relative_to(conf_dir()).parent.as_posix() == group or group in GLOBAL_GROUPS
]


def test_every_file_is_reached() -> None:
    assert {option.file for option in OPTIONS} | {conf_dir() / "config.yaml"} == set(FILES)


@pytest.fixture
def my_rewards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_rewards.py").write_text("def length(completions):\n    return [len(c) for c in completions]\n")
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "hello", "answer": "hi"}\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: f"{option.group}={option.name}")
@pytest.mark.usefixtures("my_rewards")
def test_option_composes_and_builds(option: Option) -> None:
    resolvers.register()
    if option.group in NESTED_AT:
        choice = f"+{option.group}@{NESTED_AT[option.group]}={option.name}"
    else:
        choice = f"{option.group}={option.name}"
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        overrides = [choice, *REQUIRED.get(choice, [])]
        config = compose("config", overrides=overrides)
    bases = {group: base for group, base in GROUP_BASES.items() if group in config}
    prepared = prepare(config, bases=bases, groups=list(GROUP_BASES))
    if option.group in GROUP_BASES:
        assert prepared.components[option.group] is not None


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: f"{option.group}={option.name}")
def test_option_says_what_it_is(option: Option) -> None:
    assert option.description, f"{option.file} must begin with a comment that says what it is for --help"
    if option.group in GLOBAL_GROUPS:
        assert option.file.read_text().startswith("# @package _global_\n"), option.file


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(conf_dir()).as_posix())
def test_arxiv_ids_are_quoted(file: Path) -> None:
    """2603.24430 without quotes is a float that loses its last digit."""
    for line in file.read_text().splitlines():
        code = line.partition("#")[0]
        assert not re.search(r":\s*\d{4}\.\d{5}\s*$", code), f"{file}: {line.strip()}"


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.group in GROUP_BASES], ids=lambda o: f"{o.group}={o.name}")
def test_file_names_fit_the_command_line(option: Option) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", option.name), f"{option.file}: lower case, digits and underscores"


def test_the_default_run_is_sound() -> None:
    """`python train.py` with nothing else: the stage, too, agrees with its components."""
    resolvers.register()
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        prepared = prepare_run(compose("config"))
    assert isinstance(prepared.components["stage"].required_groups, tuple)


def test_what_must_be_given_is_up_to_date() -> None:
    known = {f"{option.group}={option.name}" for option in OPTIONS}
    assert set(REQUIRED) <= known
