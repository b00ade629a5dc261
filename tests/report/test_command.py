from __future__ import annotations

import json

import pytest

from composer_rl.cli import console
from composer_rl.report import document, pictures
from tests.report.make_run import write_run
from tests.report.make_sweep import PRESETS, ArmPlan, write_sweep


@pytest.fixture(autouse=True)
def light(monkeypatch, tmp_path):
    monkeypatch.setattr(document, "plotly_source", lambda: "/* plotly */")
    monkeypatch.setattr(pictures, "CHROMIUM_NAMES", ("no-such-browser",))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def sweep(tmp_path):
    return write_sweep(tmp_path / "multirun" / "presets", PRESETS[:2], num_seeds=2, num_steps=4)


def test_a_run_and_a_sweep(tmp_path, sweep, capsys):
    run = write_run(tmp_path / "run", num_steps=3)
    assert console(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
    assert console(["report", "multirun/presets"]) == 0
    out, err = capsys.readouterr()
    assert out.split() == [str(sweep / name) for name in ("report.html", "report.csv")]
    assert err == "no pictures of the figures: none of no-such-browser is installed: apt-get install chromium\n"


def test_several_sweeps_and_two_runs_go_to_a_new_folder(tmp_path, sweep, capsys):
    other = write_sweep(tmp_path / "multirun" / "more", PRESETS[1:3], num_seeds=2, num_steps=4)
    assert console(["report", str(sweep), str(other), "--baseline", "po=dapo"]) == 0
    assert (tmp_path / "reports" / "presets-more" / "report.html").is_file()
    runs = [str(sweep / "0-00000000"), str(sweep / "2-00000002")]
    assert console(["compare", *runs]) == 0
    assert (tmp_path / "reports" / "0-00000000-2-00000002" / "report.csv").is_file()
    assert console(["compare", *runs, "--to", "mine"]) == 0
    assert (tmp_path / "mine" / "report.html").is_file()
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report"], "the following arguments are required: folder"),
        (["report", "nowhere"], "nowhere is no folder"),
        (["report", "multirun"], "is no run folder: it has no result.json; nor is it a sweep's"),
        (["report", "run", "--baseline", "po=a"], "--baseline is for sweeps"),
        (["report", "run", "multirun/presets"], "compare runs with: composer-rl compare RUN RUN"),
        (["report", "multirun/presets", "--baseline", "po=x"], "no arm is the baseline po=x"),
        (["report", "multirun/presets", "--colour"], "unrecognized arguments: --colour"),
        (["compare", "run"], "takes two run folders, got 1"),
        (["compare", "run", "multirun"], "is no run folder"),
        (["list", "nowhere"], "nowhere is no folder"),
    ],
)
def test_wrong_words_are_one_line(tmp_path, sweep, words, message, capsys):
    write_run(tmp_path / "run", num_steps=3)
    assert console(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize("verb", ["report", "compare", "list"])
def test_help(verb, capsys):
    assert console([verb, "--help"]) == 0
    assert f"usage: composer-rl {verb}" in capsys.readouterr().out


class TestList:
    @pytest.fixture(autouse=True)
    def runs(self, tmp_path, sweep):
        write_run(tmp_path / "outputs" / "2026-03-02" / "14-05-11-k3v9q2", num_steps=3)
        write_run(tmp_path / "outputs" / "2026-03-02" / "14-09-11-failed", num_steps=3, status="failed")
        (tmp_path / "outputs" / "2026-03-02" / "empty").mkdir()
        broken = ArmPlan(choice={"po": "a"}, status={0: "torn", 1: "absent"})
        write_sweep(tmp_path / "multirun" / "broken", [broken], num_seeds=2, num_steps=2)

    def test_plain(self, capsys):
        assert console(["list"]) == 0
        lines = sorted(" ".join(line.split()) for line in capsys.readouterr().out.splitlines())
        assert lines == [
            "run outputs/2026-03-02/14-05-11-k3v9q2 succeeded heldout/solve_rate 0.330 → 0.765 2026-03-02 14:05 UTC",
            "run outputs/2026-03-02/14-09-11-failed failed 2026-03-02 14:05 UTC",
            "sweep multirun/broken 1 unreadable, 1 missing 2026-03-02 14:05 UTC",
            lines[3],
        ]
        assert lines[3].startswith("sweep multirun/presets 4 succeeded heldout/solve_rate_after 0.")

    def test_json(self, capsys):
        assert console(["list", "multirun", "--json"]) == 0
        found = {entry["path"]: entry for entry in json.loads(capsys.readouterr().out)}
        assert found["multirun/broken"]["jobs"] == {"unreadable": 1, "missing": 1}
        assert found["multirun/presets"]["status"] == "succeeded"
        assert found["multirun/presets"]["figures"]["heldout/solve_rate_after"][0] > 0

    def test_a_terminal_gets_colours(self, capsys, monkeypatch):
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "200")
        assert console(["list"]) == 0
        out = capsys.readouterr().out
        assert "\x1b[" in out
        assert "14-05-11-k3v9q2" in out

    def test_nothing_there(self, tmp_path, capsys):
        assert console(["list", str(tmp_path / "outputs" / "2026-03-02" / "empty")]) == 0
        assert capsys.readouterr() == ("", "no runs and no sweeps here\n")
