"""Wrong input is one line with a suggestion and exit code 2, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Refused = Callable[..., str]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["po=dapoo"], "po has no option 'dapoo'; did you mean dapo?"),
        (["pos=dapo"], "pos is neither a setting nor a config group; did you mean po?"),
        (["experimets=x"], "experimets is neither a setting nor a config group; did you mean experiments?"),
        (["sed=3"], "sed is neither a setting nor a config group; did you mean seed?"),
        (["po.epsilon_hgih=0.3"], "po.epsilon_hgih is no field of PolicyObjective; did you mean epsilon_high?"),
        (["stage.rate=fast"], "stage.rate must be float, got 'fast' (str)"),
        (["stage.rate='0.5'"], "stage.rate must be float, got '0.5' (str)"),
        (["stage.max_steps=true"], "stage.max_steps must be int, got True (bool)"),
        (["stage.max_steps=3.0"], "stage.max_steps must be int, got 3.0 (float)"),
        (["stage.rate=-1"], "stage.rate must be at least 0, got -1.0"),
        (["stage.notes={a: 1}"], "stage.notes.a must be str, got 1 (int); quote it to make it text"),
        (["stage.ending=goood"], "did you mean 'good'?"),
        (["seed=-1"], "seed must be in [0, 4294967296), got -1"),
        (["seed=one"], "seed must be int, got 'one' (str)"),
        (["max_steps=0"], "max_steps must be at least 1 or null, got 0"),
        (["run_name=2024"], "run_name must be str or null, got 2024 (int); quote it to make it text"),
        (["run_name=a/b"], "run_name must be a non-empty name without slashes"),
        (["stage.rate=${stage.rte}"], "stage.rate: the interpolation ${stage.rte} points at nothing; did you mean"),
        (["stage.rate=${oc.env:NO_SUCH_VARIABLE}"], "stage.rate: Environment variable 'NO_SUCH_VARIABLE' not found"),
        (["stage.rate=${nope:1}"], "stage.rate: there is no interpolation type 'nope'"),
        (["~stage"], "stage is missing"),
        (["stage=null"], "stage is missing"),
        (["stage=rl", "env=null"], "this stage needs the config group env: choose an option, env=<option>"),
        (["stage"], "stage needs a value, stage=<option>; options: "),
        (["seed"], "seed needs a value: seed=<value>"),
        (["dapo"], "settings are key=value, got 'dapo'; did you mean po=dapo?"),
        (["tags=[a"], "cannot read the value of tags"),
        (["see d=3"], "no spaces are allowed"),
        (["--seed=3"], "settings are given without dashes: seed=3"),
        (["--multi-run"], "unknown flag --multi-run; did you mean --multirun?"),
        (["--multirun", "--cfg", "job"], "Only one of --run, --multirun, --cfg"),
        (["+seed=3"], "seed is already there: leave the plus out"),
        (["~nothing"], "nothing cannot be left out with ~: it is not there"),
        (["hydra.run.dirr=x"], "hydra.run.dirr is no setting; did you mean dir?"),
        (["hydra/launcher=jobli"], "hydra/launcher has no option 'jobli'"),
        (["--config-name", "nope"], "Cannot find primary config 'nope'"),
        (["--config-dir", "/no/such/folder"], "--config-dir /no/such/folder is no folder"),
        (["trusted_packages=[os]"], "'os' is part of Python's standard library"),
        (["trusted_packages=[]"], "stage._target_ lab_pkg.stages.Probe is outside composer_rl; if it is yours, add"),
        (["stage._target_=lab_pkg.stages.Prob"], "lab_pkg.stages has no Prob; did you mean Probe?"),
        (["stage._target_=os.system"], "stage._target_ os.system is outside composer_rl"),
        (["stage._target_=composer_rl.cli.main"], "is no component"),
        (["stage._target_=composer_rl.runtime.Runtime"], "stage must be a Stage, but Runtime is none"),
        (
            ["hydra.run.dir=/proc/nowhere/run"],
            "cannot write the run folder /proc/nowhere/run: No such file or directory",
        ),
        (["-m", "seed=1,2", "hydra.sweep.dir=/proc/nowhere"], "cannot write the run folder /proc/nowhere"),
        (["resume=true"], "resume=true needs the folder of the run: hydra.run.dir=<folder>"),
        (["rerun=/no/such/result.json"], "cannot read /no/such/result.json"),
        (["model=some/folder"], "model has no option 'some/folder'"),
        (["po=[dapo,grpo]"], "po takes one option, got [dapo,grpo]; to compare them use: -m po=dapo,grpo"),
        (["-m", "po=[dapo,grpo],gspo"], "to compare them use: -m po=dapo,grpo,gspo"),
        (["-m", "po=choice([dapo,grpo],gspo)"], "po takes one option, got [dapo,grpo]; to compare them use"),
        (["stage=rl", "reward=answer_match"], "reward.column needs the column 'answer', which no row"),
        (["stage=rl", "rollout=vllm"], "rollout.backend=vllm needs vLLM, which is not installed"),
    ],
)
def test_wrong_input_is_one_line(refused: Refused, words: list[str], message: str) -> None:
    assert message in refused(*words)


@pytest.mark.parametrize("mode", [[], ["-m"]])
def test_several_options_in_a_file_are_refused_too(
    refused: Refused, tmp_path_factory: pytest.TempPathFactory, mode: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("conf")
    (folder / "experiments").mkdir()
    (folder / "experiments" / "two.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /hint: [none, wrong]\n"
    )
    line = refused(*mode, f"hydra.searchpath=[file://{folder}]", "experiments=two")
    assert line == "hint takes one option, got [none,wrong]; to compare them use: -m hint=none,wrong"


def test_an_option_may_build_upon_another_of_its_group(train: Callable[..., int], tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("conf")
    (folder / "po").mkdir()
    (folder / "po" / "mine.yaml").write_text("defaults:\n  - dapo\n  - _self_\nepsilon_high: 0.3\n")
    assert train(f"hydra.searchpath=[file://{folder}]", "po=mine", "tracker=[console,none]") == 0


@pytest.mark.parametrize(
    ("lines", "words", "message"),
    [
        ('{"prompt": "a", "answer": "b"}\n{"prompt": broken\n', [], "prompts.jsonl, line 2: not JSON"),
        ('{"prompt": "a", "answer": "b"}\n[1]\n', [], "prompts.jsonl, line 2: must be an object, got list"),
        ('{"prompt": "a"}\n\n{"text": "b"}\n', [], "line 3: no column 'prompt' (it has text)"),
        ('{"prompt": 3}\n', [], "line 1: column 'prompt' must be a string"),
        ("", [], "has no training prompt left"),
        ('{"prompt": "a", "solution": "b"}\n', [], "reward.column needs the column 'answer', which no row"),
        (
            '{"prompt": "a", "answer": "b"}\n',
            ["reward.column=solution"],
            "reward.column needs the column 'solution', which no row of the dataset has; its columns: answer",
        ),
        (
            '{"prompt": "a", "answer": "b"}\n',
            ["reward=function", "reward.function._target_=lab_pkg.rewards.by_solution"],
            "reward.function needs the column 'solution', which no row of the dataset has; its columns: answer",
        ),
    ],
)
def test_a_broken_dataset_is_found_before_torch(
    refused: Refused, tmp_path_factory: pytest.TempPathFactory, lines: str, words: list[str], message: str
) -> None:
    path = tmp_path_factory.mktemp("data") / "prompts.jsonl"
    path.write_text(lines)
    dataset = ["stage=rl", "env=dataset", f"env.path={path}", "reward=answer_match", "env.heldout_fraction=0"]
    assert message in refused(*dataset, *words)


def test_b74_comma_choice_without_multirun(refused: Refused) -> None:
    line = refused("po=dapo,grpo")
    assert "po got several values, dapo,grpo: add -m" in line


def test_b74_range_without_multirun(refused: Refused) -> None:
    assert refused("seed=range(0,3)") == "seed=range(0,3) is a sweep: add -m to run each of its values"


def test_b73_commas_and_lists(train: Callable[..., int], results: Callable[[], list[dict]]) -> None:
    """A quoted comma is text, a bracketed list is one value, and lists can be swept."""
    assert train("run_name='a,b'", "tags=[x,y]") == 0
    assert results()[0]["config"]["run_name"] == "a,b"
    assert results()[0]["config"]["tags"] == ["x", "y"]
    assert train("-m", "hydra/launcher=basic", "run_name=lists", "tags=[x],[y,z]") == 0
    swept = [result["config"]["tags"] for result in results() if result["sweep"]]
    assert swept == [["x"], ["y", "z"]]


def test_a_sweep_is_checked_before_its_first_job(refused: Refused) -> None:
    assert "stage.rate must be float" in refused("-m", "stage.rate=0.1,fast")
    assert "po has no option 'dapoo'" in refused("-m", "po=grpo,dapoo")


def test_b76_launcher_inside_a_swept_file(refused: Refused, workplace: Path, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("conf")
    (folder / "experiments").mkdir()
    (folder / "hydra" / "sweeper").mkdir(parents=True)
    (folder / "hydra" / "sweeper" / "other.yaml").write_text("defaults:\n  - basic\n")
    for name, extra in (("plain", ""), ("chooses", "  - override /hydra/sweeper: other\n")):
        (folder / "experiments" / f"{name}.yaml").write_text(
            f"# @package _global_\ndefaults:\n  - override /po: dapo\n{extra}"
        )
    line = refused("-m", f"hydra.searchpath=[file://{folder}]", "experiments=plain,chooses")
    assert line.startswith("hydra/sweeper=other is set in a file that is swept over")


def test_b77_one_level_of_parallelism() -> None:
    from omegaconf import OmegaConf

    from composer_rl.errors import ConfigError
    from composer_rl.preflight import check_parallelism

    both = OmegaConf.create({"hydra": {"sweeper": {"n_jobs": 4}, "launcher": {"n_jobs": -1}}})
    with pytest.raises(ConfigError, match="multiply; set one of them to 1"):
        check_parallelism(both)
    check_parallelism(OmegaConf.create({"hydra": {"sweeper": {"n_jobs": 4}, "launcher": {"n_jobs": 1}}}))


def test_bad_yaml_names_file_and_line(refused: Refused, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("conf")
    (folder / "debug").mkdir()
    (folder / "debug" / "broken.yaml").write_text("# @package _global_\nseed: [1,\n")
    line = refused(f"hydra.searchpath=[file://{folder}]", "debug=broken")
    assert "broken.yaml, line 3 is not valid YAML" in line


def test_a_file_that_overrides_an_unknown_group(refused: Refused, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("conf")
    (folder / "experiments").mkdir()
    (folder / "experiments" / "mine.yaml").write_text("# @package _global_\ndefaults:\n  - override /pos: dapo\n")
    line = refused(f"hydra.searchpath=[file://{folder}]", "experiments=mine")
    assert line == "experiments/mine: pos is no config group; did you mean po?"


def test_package_that_cannot_be_imported(refused: Refused, tmp_path_factory, monkeypatch) -> None:
    folder = tmp_path_factory.mktemp("code")
    (folder / "broken_pkg.py").write_text("import no_such_module\n")
    (folder / "faulty_pkg.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(folder))
    trusted = "trusted_packages=[broken_pkg,faulty_pkg,absent_pkg]"
    assert "importing broken_pkg needs the module 'no_such_module'" in refused(trusted, "stage._target_=broken_pkg.A")
    assert "importing faulty_pkg failed: ZeroDivisionError" in refused(trusted, "stage._target_=faulty_pkg.A")
    assert "no package 'absent_pkg'" in refused(trusted, "stage._target_=absent_pkg.A")
