"""What a run leaves behind, however it ends."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Train = Callable[..., int]
Results = Callable[[], list[dict[str, Any]]]
Spawn = Callable[..., subprocess.Popen[str]]


def probe_facts(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "probe.json").read_text())


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    for _ in range(600):
        if path.exists():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError(f"{path} did not appear within 30 s")


def test_a_run_that_succeeds(train: Train, results: Results, workplace: Path) -> None:
    assert train("run_name=first", "seed=5", "tags=[a]", "po=dapo") == 0
    (result,) = results()
    assert result["schema_version"] == "1.0"
    assert (result["status"], result["exit_code"], result["error"]) == ("succeeded", 0, None)
    assert result["metrics"] == {"heldout/solve_rate_after": 0.5, "not_finite": None}
    assert result["engagement"][0]["engaged"] is False
    assert result["seeds"] == {"seed": 5}
    assert (result["run_name"], result["stage"], result["choices"]["po"]) == ("first", "probe", "dapo")
    assert result["config"]["stage"]["_target_"] == "lab_pkg.stages.Probe"
    assert result["package_versions"]["python"].startswith("3.")
    assert result["started_at"] <= result["ended_at"]
    assert result["duration_s"] >= 0
    assert result["command"][:2] == ["python", "train.py"]
    assert "po=dapo" in result["overrides"]
    (run_dir,) = (workplace / "outputs").glob("*/*")
    assert run_dir.name.endswith(result["run_id"])
    assert {"result.json", "metrics.jsonl", "run.log"} <= {entry.name for entry in run_dir.iterdir()}
    assert not [entry.name for entry in run_dir.iterdir() if entry.name.startswith(".result")]
    assert [entry.name for entry in workplace.iterdir()] == ["outputs"]


def test_nothing_heavy_is_imported_before_the_stage_asks(spawn: Spawn, workplace: Path) -> None:
    process = spawn("hydra.run.dir=run")
    assert process.wait(timeout=60) == 0, process.communicate()
    assert probe_facts(workplace / "run")["heavy"] == []


@pytest.mark.parametrize(
    ("ending", "status", "code", "kind"),
    [
        ("bug", "failed", 1, "RuntimeError"),
        ("known_error", "failed", 1, "EngagementError"),
        ("stop", "stopped", 3, "Stopped"),
    ],
)
def test_other_endings(train: Train, results: Results, ending: str, status: str, code: int, kind: str) -> None:
    assert train(f"stage.ending={ending}") == code
    (result,) = results()
    assert (result["status"], result["exit_code"], result["error"]["type"]) == (status, code, kind)
    assert "sk-aaaa" not in json.dumps(result)
    if ending == "bug":
        assert "in run" in result["error"]["traceback"]


def test_a_void_run_fails_and_keeps_its_figures(train: Train, results: Results) -> None:
    assert train("stage.ending=void") == 1
    (result,) = results()
    assert (result["status"], result["error"]["type"]) == ("failed", "EngagementError")
    assert result["error"]["message"] == "loss.channels.sdpo.weight never engaged"
    assert result["metrics"]["heldout/solve_rate_after"] == 0.5
    assert result["engagement"]


def test_a_known_error_is_one_line_without_a_traceback(train: Train, capsys: pytest.CaptureFixture[str]) -> None:
    assert train("stage.ending=known_error") == 1
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["error: loss.alpha_sdpo never found an error site"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted(spawn: Spawn, results: Results, workplace: Path, number: int, code: int) -> None:
    process = spawn("stage.ending=wait", "hydra.run.dir=run")
    wait_for(workplace / "run" / "waiting", process)
    (result,) = results()
    assert (result["status"], result["exit_code"], result["ended_at"]) == ("running", None, None)
    process.send_signal(number)
    assert process.wait(timeout=60) == code
    (result,) = results()
    assert (result["status"], result["exit_code"]) == ("interrupted", code)
    assert result["ended_at"] is not None


@pytest.mark.parametrize(("ending", "status", "code"), [("interrupt", "interrupted", 130), ("good", "succeeded", 0)])
def test_ctrl_c_while_the_page_is_written_spares_the_page_alone(
    train: Train,
    results: Results,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ending: str,
    status: str,
    code: int,
) -> None:
    """The record is there before the page is begun, and the second Ctrl-C does not change it."""
    import composer_rl.report.page as page

    seen = []

    def impatient(run_dir: Path) -> Path:
        seen.extend(results())
        assert "writing the report (Ctrl-C leaves it out) …" in capsys.readouterr().out
        raise KeyboardInterrupt

    monkeypatch.setattr(page, "write_report", impatient)
    assert train(f"stage.ending={ending}", "hydra.run.dir=run") == code
    assert results() == seen
    assert [(result["status"], result["exit_code"]) for result in seen] == [(status, code)]
    assert "no report.html; it is written later with: composer-rl report" in Path("run", "run.log").read_text()


def test_a_kill_while_the_page_is_written_ends_the_process(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    import composer_rl.report.page as page
    from composer_rl.process import Interrupted

    def killed(run_dir: Path) -> Path:
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(page, "write_report", killed)
    assert train() == 143


def test_the_process_ends_without_a_search_for_garbage() -> None:
    code = (
        "import atexit, gc; from composer_rl.cli import main; "
        "atexit.register(lambda: print(gc.get_freeze_count() > 0)); main(['--version'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True"


def test_ctrl_c_ends_a_whole_sweep(spawn: Spawn, results: Results, workplace: Path) -> None:
    process = spawn(
        "-m",
        *IN_PROCESS,
        "hydra.sweep.dir=sweep",
        "hydra.sweep.subdir=${hydra.job.num}",
        "stage.ending=wait",
        "seed=1,2",
    )
    wait_for(workplace / "sweep" / "0" / "waiting", process)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert [result["status"] for result in results()] == ["interrupted"]


def test_killed_run_leaves_running_and_can_be_resumed(
    spawn: Spawn, train: Train, results: Results, workplace: Path
) -> None:
    process = spawn("stage.ending=wait", "hydra.run.dir=run")
    wait_for(workplace / "run" / "waiting", process)
    process.kill()
    process.wait()
    assert results()[0]["status"] == "running"
    assert train("resume=true", "hydra.run.dir=run", "stage.ending=good") == 0
    assert results()[0]["status"] == "succeeded"


def test_the_folder_of_a_living_run_is_refused(spawn: Spawn, train: Train, workplace: Path, capsys) -> None:
    process = spawn("stage.ending=wait", "hydra.run.dir=run")
    wait_for(workplace / "run" / "waiting", process)
    before = (workplace / "run" / "result.json").read_text()
    assert train("resume=true", "hydra.run.dir=run") == 2
    assert f"is in use by another run (process {process.pid})" in capsys.readouterr().err
    assert (workplace / "run" / "result.json").read_text() == before


def test_run_folder_is_refused_unless_empty_or_resumed(train: Train, workplace: Path, capsys) -> None:
    folder = workplace / "run"
    folder.mkdir()
    (folder / "thesis.txt").write_text("precious")
    assert train("hydra.run.dir=run") == 2
    assert "is not empty (thesis.txt); choose another hydra.run.dir" in capsys.readouterr().err
    assert [entry.name for entry in folder.iterdir()] == ["thesis.txt"]
    assert train("hydra.run.dir=run", "resume=true") == 2
    assert train("hydra.run.dir=run/thesis.txt") == 2
    assert [entry.name for entry in folder.iterdir()] == ["thesis.txt"]
    assert train("hydra.run.dir=fresh") == 0
    assert train("hydra.run.dir=fresh") == 2
    assert "add resume=true to go on with it" in capsys.readouterr().err


def test_a_disk_that_is_full_at_the_start_is_one_line_and_leaves_no_record(
    train: Train, results: Results, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fill(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fill)
        assert train("hydra.run.dir=run") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: cannot write the run folder ")
    assert line.endswith("/run: No space left on device")
    assert results() == []
    assert not (Path("run") / ".reserve").exists()
    assert train("hydra.run.dir=run") == 0
    before = results()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fill)
        assert train("hydra.run.dir=run", "resume=true") == 2
    assert results() == before


@pytest.mark.parametrize(
    ("checkpoint", "way_on"),
    [
        ("checkpoint-2/composer_state.json", "go on with: resume=true hydra.run.dir="),
        ("checkpoint-2/model.safetensors", "it has no complete checkpoint: free some and start again"),
    ],
)
def test_a_disk_that_fills_is_resumed_only_from_a_checkpoint(
    train: Train, results: Results, monkeypatch: pytest.MonkeyPatch, checkpoint: str, way_on: str
) -> None:
    def full(error: BaseException, run_dir: Path) -> bool:
        (run_dir / checkpoint).parent.mkdir()
        (run_dir / checkpoint).touch()
        return True

    monkeypatch.setattr("composer_rl.run.is_disk_full", full)
    assert train("stage.ending=bug", "hydra.run.dir=run") == 1
    (result,) = results()
    assert (result["status"], result["error"]["type"]) == ("failed", "DiskFullError")
    assert way_on in result["error"]["message"]
    assert not Path("run", ".reserve").exists()


def test_an_empty_folder_of_the_user_stays_when_the_input_is_wrong(train: Train, workplace: Path) -> None:
    (workplace / "mine").mkdir()
    assert train("hydra.run.dir=mine", "stage.rate=-1") == 2
    assert (workplace / "mine").is_dir()


def test_b82_runs_of_the_same_second_do_not_collide(spawn: Spawn, results: Results) -> None:
    processes = [spawn() for _ in range(3)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0, 0]
    assert len({result["run_id"] for result in results()}) == 3


def test_one_of_two_runs_gets_a_folder(spawn: Spawn, results: Results) -> None:
    processes = [spawn("hydra.run.dir=run") for _ in range(2)]
    assert sorted(process.wait(timeout=120) for process in processes) == [0, 2]
    assert [result["status"] for result in results()] == ["succeeded"]


def test_secrets_are_not_written(train: Train, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_API_KEY", "correct-horse-battery")
    assert (
        train(
            "hydra.run.dir=run",
            "stage.notes={api_key: plain-word, url: 'https://me:pass123@host/x', pad_token: '<pad>', "
            "secret_env: MY_SERVICE_API_KEY, copied: '${oc.env:MY_SERVICE_API_KEY}'}",
        )
        == 0
    )
    written = "".join(file.read_text() for file in (workplace / "run").iterdir() if file.suffix in (".json", ".log"))
    for secret in ("correct-horse-battery", "plain-word", "pass123"):
        assert secret not in written
    notes = json.loads((workplace / "run" / "result.json").read_text())["config"]["stage"]["notes"]
    assert notes["secret_env"] == "MY_SERVICE_API_KEY"
    assert notes["pad_token"] == "<pad>"
    assert notes["copied"] == notes["api_key"] == "<redacted>"
    assert probe_facts(workplace / "run")["config_notes"] == notes


def test_a_field_that_the_yaml_leaves_out_needs_no_plus(train: Train, results: Results) -> None:
    assert train("stage.hidden_default=8", "stage.notes.extra=text") == 0
    assert results()[0]["config"]["stage"]["hidden_default"] == 8
    assert results()[0]["config"]["stage"]["notes"] == {"extra": "text"}


def test_a_report_that_fails_is_said_and_does_not_fail_the_run(
    train: Train, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import composer_rl.report.page as page

    def broken(run_dir: Path) -> Path:
        raise OSError("disk full")

    monkeypatch.setattr(page, "write_report", broken)
    with caplog.at_level(logging.ERROR):
        assert train() == 0
    assert "no report.html: OSError: disk full; try again with: composer-rl report" in caplog.text


IN_PROCESS = ("hydra/launcher=basic", "hydra/sweeper=basic")


class TestSweeps:
    """B79, B80 and what else goes wrong when jobs share a process."""

    def test_every_job_has_its_own_result_and_identity(self, train: Train, results: Results) -> None:
        assert train("-m", *IN_PROCESS, "run_name=grid", "seed=1,2", "stage.ending=good,bug") == 1
        found = results()
        assert [result["status"] for result in found] == ["succeeded", "failed", "succeeded", "failed"]
        assert len({result["run_id"] for result in found}) == 4
        assert [result["job_num"] for result in found] == [0, 1, 2, 3]
        assert {result["sweep"] for result in found} == {"grid"}
        assert [result["seeds"]["seed"] for result in found] == [1, 1, 2, 2]

    def test_folders_carry_number_and_hash(self, train: Train, workplace: Path) -> None:
        assert train("-m", *IN_PROCESS, "run_name=grid", "seed=1,2") == 0
        names = sorted(entry.name for entry in (workplace / "multirun" / "grid").iterdir() if entry.is_dir())
        assert [name.partition("-")[0] for name in names] == ["0", "1"]
        assert len({name.partition("-")[2] for name in names}) == 2

    def test_environment_is_put_back_between_jobs(self, train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WANDB_RUN_ID", "of-the-shell")
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
        assert train("-m", *IN_PROCESS, "seed=1,2") == 0
        assert os.environ["WANDB_RUN_ID"] == "of-the-shell"
        assert "OMP_WAIT_POLICY" not in os.environ

    def test_unnamed_sweeps_do_not_collide(self, train: Train, workplace: Path) -> None:
        assert train("-m", *IN_PROCESS, "seed=1,2") == 0
        assert train("-m", *IN_PROCESS, "seed=1,2") == 0
        assert len(list((workplace / "multirun").iterdir())) == 2

    def test_a_named_sweep_is_finished_by_resuming(self, train: Train, results: Results, capsys) -> None:
        assert train("-m", *IN_PROCESS, "run_name=grid", "seed=1,2", "stage.ending=good") == 0
        before = results()
        assert train("-m", *IN_PROCESS, "run_name=grid", "seed=1,2", "stage.ending=good") == 2
        assert "choose another run_name or hydra.sweep.dir" in capsys.readouterr().err
        assert train("-m", *IN_PROCESS, "run_name=grid", "resume=true", "seed=1,2,3", "stage.ending=good") == 0
        assert capsys.readouterr().out.count("already succeeded") == 2
        assert results()[:2] == before
        assert [result["seeds"]["seed"] for result in results()] == [1, 2, 3]

    def test_a_job_that_cannot_be_prepared_leaves_a_result(self, train: Train, results: Results) -> None:
        """Without the preflight, as on another launcher."""
        assert train("-m", *IN_PROCESS, "~hydra.callbacks.preflight", "run_name=grid", "stage.rate=0.5,-1") == 1
        assert [result["status"] for result in results()] == ["succeeded", "failed"]
        assert results()[1]["error"]["message"] == "stage.rate must be at least 0, got -1.0"

    def test_secrets_do_not_stay_in_hydras_file(self, train: Train, workplace: Path) -> None:
        assert train("-m", *IN_PROCESS, "run_name=grid", "stage.notes={api_key: plain-word}", "seed=1,2") == 0
        assert "plain-word" not in (workplace / "multirun" / "grid" / "multirun.yaml").read_text()

    def test_going_on_with_other_settings_is_said(self, train: Train, capsys: pytest.CaptureFixture[str]) -> None:
        words = ("-m", *IN_PROCESS, "hydra.sweep.dir=sweep", "hydra.sweep.subdir=${hydra.job.num}", "seed=1,2")
        assert train(*words) == 0
        assert train(*words, "resume=true", "stage.rate=0.1") == 0
        assert "goes on with other settings than it began with: stage" in capsys.readouterr().err
