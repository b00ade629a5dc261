from __future__ import annotations

import logging
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from composer_rl.trackers.console import ConsoleTracker

RUN = """
import logging, pathlib, sys, warnings
logging.basicConfig(stream=sys.stdout, level="INFO", format="LOG %(message)s")
from composer_rl.trackers.base import RunInfo
from composer_rl.trackers.console import ConsoleTracker

tracker = ConsoleTracker(mode=sys.argv[1], refresh_per_s=30.0)
tracker.start(RunInfo(run_id="a", run_name="swift-fig", run_dir=pathlib.Path("/runs/a"), config={}, total_steps=20))
tracker.phase("measuring 200 held-out tasks")
tracker.log({"heldout/solve_rate": 0.31}, step=0)
tracker.phase("")
for step in range(1, 21):
    figures = {"reward": step / 20, "entropy": 0.5, "clip_ratio/region_mean": 0.01, "tokens_per_s": 1234.0}
    tracker.log(figures, step=step)
    if step == 5: logging.info("one line from a handler made before")
    if step == 7: warnings.warn("careful")
    if step == 9: print("printed text")
    if step == 11: sys.stderr.write("to stderr\\n")
if sys.argv[2] == "raise":
    tracker.finish("failed", {"error": {"type": "OSError", "message": "disk [full]"}})
else:
    tracker.finish("succeeded", {"metrics": {"heldout/solve_rate_before": 0.31, "heldout/solve_rate_after": 0.76}})
print("after the run")
"""


def screen(raw: str) -> list[str]:
    """What a terminal shows after `raw`: carriage return, newline, cursor up and erase line are carried out."""
    rows, row, column = [[]], 0, 0
    for match in re.finditer(r"\x1b\[([0-9;?]*)([A-Za-z])|(\r)|(\n)|([^\x1b])", raw):
        argument, command, home, newline, character = match.groups()
        if command == "A":
            row = max(0, row - int(argument or 1))
        elif command == "K":
            rows[row] = []
        elif home:
            column = 0
        elif newline:
            row += 1
            if row == len(rows):
                rows.append([])
        elif character:
            rows[row] += [" "] * (column + 1 - len(rows[row]))
            rows[row][column] = character
            column += 1
    return ["".join(row).rstrip() for row in rows]


def run_in_terminal(*arguments: str, columns: int = 100) -> str:
    """Raw bytes that RUN writes to a pseudo-terminal of that width."""
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "40", "NO_COLOR": "1"}
    environment.pop("CI", None)
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments], stdout=follower, stderr=follower, stdin=follower, env=environment
    )
    os.close(follower)
    output = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # Linux answers EIO once the other side is closed.
            break
        if not chunk:
            break
        output += chunk
    os.close(leader)
    assert process.wait(timeout=60) == 0, output.decode()
    return output.decode()


def run_in_pipe(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("columns", [100, 40])
def test_a_terminal_shows_one_block_and_ends_clean(columns):
    raw = run_in_terminal("auto", "end", columns=columns)
    shown = screen(raw)
    text = "\n".join(shown)
    for line in ("LOG one line from a handler made before", "printed text", "to stderr", "after the run"):
        assert shown.count(line) == 1, text
    assert "UserWarning: careful" in text
    assert sum("step 20/20" in line for line in shown) == 1, text
    assert not any(f"step {step}/20" in text for step in range(20)), text
    assert "0.310" in text
    assert "0.760" in text
    assert max(len(line) for line in shown if "step" in line or "reward" in line) <= columns
    # Read until the end, the cursor is visible again.
    assert raw.rfind("\x1b[?25h") > raw.rfind("\x1b[?25l") >= 0


def test_a_failed_run_gives_the_terminal_back():
    raw = run_in_terminal("auto", "raise")
    shown = screen(raw)
    assert "failed  swift-fig, 0:00" in shown
    assert "OSError: disk [full]" in shown
    assert shown[-2:] == ["after the run", ""]


def test_a_pipe_gets_plain_lines():
    output = run_in_pipe("auto", "end")
    assert "\x1b" not in output
    assert "\r" not in output
    lines = output.splitlines()
    assert "measuring 200 held-out tasks …" in lines
    steps = [line for line in lines if line.startswith("step ")]
    # New held-out figures, then the last step: the ones between come within the five seconds.
    assert [line.split(" | ")[0] for line in steps] == ["step 0/20", "step 20/20"]
    assert "reward 1.000 | held-out solved 0.310 | entropy 0.500 | clipped 0.010 | tokens/s 1 234" in steps[-1]
    assert lines[-1] == "after the run"


def test_off_prints_nothing(capsys, make_info):
    tracker = ConsoleTracker(mode="off")
    tracker.start(make_info())
    tracker.phase("measuring")
    tracker.log({"reward": 1.0}, step=1)
    tracker.finish("succeeded", {"metrics": {"a": 1.0}})
    assert capsys.readouterr() == ("", "")


def test_plain_lines_come_no_faster_than_asked(capsys, make_info, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("composer_rl.trackers.console.time.monotonic", lambda: now[0])
    tracker = ConsoleTracker(mode="plain", plain_every_s=5.0, show_summary=False)
    tracker.start(make_info(total_steps=100))
    for step in range(1, 21):
        now[0] += 1.0
        tracker.log({"reward": 0.5}, step=step)
    tracker.finish("succeeded", {})
    steps = [line.split("|")[0].strip() for line in capsys.readouterr().out.splitlines()]
    assert steps == ["step 1/100", "step 6/100", "step 11/100", "step 16/100"]


def test_handlers_write_to_their_own_stream_again(make_info, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    logger = logging.getLogger("composer_rl.test.console")
    before = logging.StreamHandler(sys.stdout)
    logger.addHandler(before)
    try:
        originals = (sys.stdout, sys.stderr)
        tracker = ConsoleTracker(mode="live", show_summary=False)
        tracker.start(make_info(total_steps=3))
        assert before.stream is sys.stderr is not originals[1]
        meanwhile = logging.StreamHandler()  # As a library makes one when it is imported during the run.
        logger.addHandler(meanwhile)
        tracker.finish("succeeded", {})
        assert (sys.stdout, sys.stderr) == originals
        assert (before.stream, meanwhile.stream) == originals
    finally:
        logger.handlers.clear()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mode": "fancy"}, "mode must be auto, live, plain or off, got 'fancy'"),
        ({"plain_every_s": -1.0}, "plain_every_s must be at least 0, got -1"),
        ({"refresh_per_s": 0.0}, r"refresh_per_s must be in \(0, 30\], got 0"),
        ({"refresh_per_s": 31.0}, r"refresh_per_s must be in \(0, 30\], got 31"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(ValueError, match=message):
        ConsoleTracker(**fields)


def test_the_yaml_shows_the_defaults():
    from omegaconf import OmegaConf

    path = Path(__file__).parents[2] / "conf" / "tracker" / "console.yaml"
    assert OmegaConf.load(path).trackers.console.columns == ConsoleTracker().columns
