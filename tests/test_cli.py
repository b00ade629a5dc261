"""The command line as a process: what it prints, how it ends, and what it does not import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from composer_rl.cli import VERBS, console, main

REPOSITORY = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "trl", "peft", "wandb", "datasets", "pandas", "pyarrow", "accelerate", "plotly")

PROBE = """
import sys
from composer_rl.cli import main
code = main(sys.argv[2:])
heavy = sorted(set(sys.argv[1].split(",")) & set(sys.modules))
assert not heavy, f"imported: {heavy}"
sys.exit(code)
"""


def light(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in its own process; fails when it imported anything heavy."""
    return subprocess.run(
        [sys.executable, "-c", PROBE, ",".join(HEAVY), *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_cfg_job_is_light(tmp_path: Path) -> None:
    done = light(tmp_path, "--cfg", "job", "po=dapo")
    assert done.returncode == 0, done.stderr
    assert "epsilon_high: 0.28" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_help_is_light_and_names_every_option(tmp_path: Path) -> None:
    from composer_rl.config import paths

    done = light(tmp_path, "--help")
    assert done.returncode == 0, done.stderr
    assert "python train.py po=dapo seed=3" in done.stdout
    for group, options in paths.catalog().options.items():
        for name in options:
            if "/" not in name:
                assert f" {name} " in done.stdout or f" {name}\n" in done.stdout, f"{group}={name}"
    assert "* dr_grpo" in done.stdout
    assert "@package" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_user_folder_is_in_the_help(tmp_path: Path) -> None:
    (tmp_path / "mine" / "po").mkdir(parents=True)
    (tmp_path / "mine" / "po" / "house.yaml").write_text("# our own objective\ndefaults: [dapo]\n")
    done = light(tmp_path, "--config-dir", "mine", "--help")
    assert "house" in done.stdout
    assert "our own objective" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["po=dapoo"], "error: po has no option 'dapoo'; did you mean dapo?\n"),
        (
            ["po.epsilon_hgih=0.3"],
            "error: po.epsilon_hgih is no field of PolicyObjective; did you mean epsilon_high?\n",
        ),
        (
            ["optim.learning_rate=fast"],
            "error: optim.learning_rate must be float, got 'fast' (str)\n",
        ),
        (["po.epsilon=-0.1"], None),
        (["po"], None),
        (["--zzzzz"], "error: unknown flag --zzzzz; see --help\n"),
    ],
)
def test_wrong_input_is_one_line_before_anything_heavy(tmp_path: Path, words: list[str], message: str | None) -> None:
    done = light(tmp_path, *words)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert message is None or done.stderr == message
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_hydras_own_flags_work(tmp_path: Path) -> None:
    assert "Hydra" in light(tmp_path, "--hydra-help").stdout
    defaults = light(tmp_path, "--info", "defaults")
    assert defaults.returncode == 0
    assert "po/dr_grpo" in defaults.stdout
    package = light(tmp_path, "--cfg", "job", "--package", "po")
    assert package.stdout.startswith("# @package po")


def test_flags_may_stand_between_settings(tmp_path: Path) -> None:
    done = light(tmp_path, "po=dapo", "--cfg", "job", "seed=3")
    assert done.returncode == 0, done.stderr
    assert "seed: 3" in done.stdout


def test_tab_completion_lists_options(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "train.py"), "--shell-completion", "query=bash"],
        cwd=tmp_path,
        env={**os.environ, "COMP_LINE": "python train.py po=da", "COMP_POINT": "21", "COMP_CWORD": "2"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["po=dapo"]


def test_train_py_runs_from_any_folder(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "train.py"), "--cfg", "job"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


class TestConsoleScript:
    def test_verbs_are_listed(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert console(["--help"]) == 0
        listed = capsys.readouterr().out
        assert all(verb in listed for verb in VERBS)
        assert console([]) == 2

    def test_unknown_verb(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert console(["trian"]) == 2
        assert capsys.readouterr().err == "error: composer-rl has no verb 'trian'; did you mean train?\n"
        assert console(["xyz"]) == 2
        assert "there are: train, report, compare, list, doctor" in capsys.readouterr().err

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        import composer_rl

        for command in (lambda: console(["--version"]), lambda: console(["train", "--version"])):
            assert command() == 0
            assert capsys.readouterr().out == f"composer-rl {composer_rl.__version__}\n"

    def test_train_names_itself(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert console(["train", "--help"]) == 0
        assert "composer-rl train po=dapo" in capsys.readouterr().out

    def test_report_wants_a_run_folder(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert console(["report", str(tmp_path)]) == 2
        assert "is no run folder: it has no result.json" in capsys.readouterr().err
        assert console(["report"]) == 2

    def test_doctor(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert console(["doctor", "now"]) == 2
        capsys.readouterr()
        code = console(["doctor"])
        page = capsys.readouterr().out
        for word in ("composer_rl", "conf", "python", "torch", "trl", "cores", "memory", "cuda", "sandbox"):
            assert word in page
        assert code == (1 if "missing" in page else 0)


def test_main_takes_words_or_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--version"])
    assert main() == 0
    assert main(["--version"]) == 0


def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    """`composer-rl list | head -1`: the pipe is closed before the table is out."""
    code = (
        "import sys; from composer_rl import cli\n"
        "cli.VERBS['list'] = ('', lambda words: [print('line ' * 100, flush=True) for _ in range(10_000)] and 0)\n"
        "sys.exit(cli.console(['list']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).parents[1]
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=30) == 141
    assert process.stderr.read() == b""
