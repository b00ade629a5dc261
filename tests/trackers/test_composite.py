from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from composer_rl.errors import MissingExtraError, RunDirectoryError
from composer_rl.trackers.base import RunInfo, Tracker
from composer_rl.trackers.composite import TrackerSet
from composer_rl.trackers.console import ConsoleTracker


@dataclass(kw_only=True)
class Recorder(Tracker):
    """Keeps what it is given and raises where it is told to."""

    raises: dict[str, BaseException] = field(default_factory=dict)
    calls: list[Any] = field(default_factory=list)

    def _note(self, action: str, *values: Any) -> None:
        self.calls.append((action, *values))
        if action in self.raises:
            raise self.raises[action]

    info: RunInfo | None = None

    def start(self, info: RunInfo) -> None:
        self.info = info
        self._note("start")

    def log(self, metrics: dict[str, float], *, step: int) -> None:
        self._note("log", metrics, step)

    def phase(self, text: str) -> None:
        self._note("phase", text)

    def finish(self, status: str, summary: dict[str, Any]) -> None:
        self._note("finish", status, summary)

    def count(self, action: str) -> int:
        return sum(call[0] == action for call in self.calls)


def quiet(**trackers: Tracker | None) -> TrackerSet:
    return TrackerSet(trackers={"console": ConsoleTracker(mode="off"), **trackers})


def test_console_and_jsonl_are_added():
    assert set(TrackerSet().trackers) == {"console", "jsonl"}
    assert set(TrackerSet(trackers={"mine": Recorder()}).trackers) == {"mine", "console", "jsonl"}


@pytest.mark.parametrize("name", ["console", "jsonl"])
def test_console_and_jsonl_cannot_be_left_out(name):
    with pytest.raises(ValueError, match=rf"trackers\.{name} must stay on"):
        TrackerSet(trackers={name: None})


def test_what_is_no_tracker_is_named():
    with pytest.raises(ValueError, match=r"trackers\.mine must be a Tracker, got str"):
        TrackerSet(trackers={"mine": "wandb"})


def test_every_tracker_gets_every_call(make_info):
    first, second = Recorder(), Recorder()
    trackers = quiet(first=first, second=second, off=None)
    trackers.start(make_info())
    assert trackers.active == ("console", "first", "second", "jsonl")
    trackers.phase("measuring")
    trackers.log({"reward": 1}, step=3)
    trackers.finish("succeeded", {"metrics": {"a": 1.0}})
    for tracker in (first, second):
        assert tracker.calls == [
            ("start",),
            ("phase", "measuring"),
            ("log", {"reward": 1.0}, 3),
            ("finish", "succeeded", {"metrics": {"a": 1.0}}),
        ]


def test_a_value_that_is_no_number_is_an_error(make_info):
    trackers = quiet()
    trackers.start(make_info())
    with pytest.raises((TypeError, ValueError)):
        trackers.log({"reward": "high"}, step=1)
    trackers.finish("failed", {})


def test_a_failure_while_logging_is_reported_once_and_the_run_goes_on(make_info, caplog):
    broken, sound = Recorder(raises={"log": OSError("disk\nfull")}), Recorder()
    trackers = quiet(broken=broken, sound=sound)
    trackers.start(make_info())
    with caplog.at_level(logging.ERROR):
        for step in (1, 2, 3):
            trackers.log({"reward": 0.5}, step=step)
    assert [record.getMessage() for record in caplog.records] == [
        "tracker 'broken' failed in log and is left out from now on; the run goes on. OSError: disk full"
    ]
    assert broken.count("log") == 1
    assert sound.count("log") == 3
    trackers.finish("succeeded", {})
    assert broken.calls[-1] == ("finish", "succeeded", {})
    assert (broken.count("finish"), sound.count("finish")) == (1, 1)


def test_a_failure_at_the_start_leaves_that_tracker_out(make_info, caplog):
    broken, sound = Recorder(raises={"start": OSError("no network")}), Recorder()
    trackers = quiet(broken=broken, sound=sound)
    trackers.start(make_info())
    trackers.log({"reward": 0.5}, step=1)
    trackers.finish("succeeded", {})
    assert "tracker 'broken' failed in start" in caplog.text
    assert [call[0] for call in broken.calls] == ["start"]
    assert sound.count("log") == 1


@pytest.mark.parametrize(
    "error", [MissingExtraError("tracker x", package="x", extra="x"), RunDirectoryError("occupied")], ids=repr
)
def test_an_error_raised_on_purpose_at_the_start_ends_the_run(make_info, error):
    started, broken, never = Recorder(), Recorder(raises={"start": error}), Recorder()
    trackers = quiet(started=started, broken=broken, never=never)
    with pytest.raises(type(error)):
        trackers.start(make_info())
    assert [call[0] for call in started.calls] == ["start", "finish"]
    assert [call[0] for call in broken.calls] == ["start"]
    assert never.calls == []
    trackers.finish("failed", {})
    assert started.count("finish") == 1


def test_an_interrupt_at_the_start_finishes_what_was_started(make_info):
    started = Recorder()
    trackers = quiet(started=started, slow=Recorder(raises={"start": KeyboardInterrupt()}))
    with pytest.raises(KeyboardInterrupt):
        trackers.start(make_info())
    assert started.calls[-1] == ("finish", "interrupted", {})


@pytest.mark.parametrize("error", [OSError("gone"), KeyboardInterrupt()], ids=repr)
def test_finish_reaches_everyone_once_even_if_one_raises(make_info, error, caplog):
    trackers = quiet(a=Recorder(), broken=Recorder(raises={"finish": error}), z=Recorder())
    trackers.start(make_info())
    if isinstance(error, Exception):
        trackers.finish("succeeded", {})
        assert "tracker 'broken' failed in finish" in caplog.text
    else:
        with pytest.raises(KeyboardInterrupt):
            trackers.finish("succeeded", {})
    trackers.finish("succeeded", {})
    assert [trackers.trackers[name].count("finish") for name in ("a", "broken", "z")] == [1, 1, 1]


def test_a_set_is_used_once(make_info):
    trackers = quiet()
    trackers.start(make_info())
    with pytest.raises(RuntimeError, match="called twice"):
        trackers.start(make_info())
    trackers.finish("succeeded", {})


def test_a_secret_reaches_no_tracker(make_info):
    mine = Recorder()
    trackers = quiet(mine=mine)
    trackers.start(make_info(config={"teacher": {"api_key": "value", "name": "x"}, "seed": 1}))
    trackers.finish("failed", {"error": {"message": "refused hf_" + "a" * 30}})
    assert mine.info.config == {"teacher": {"api_key": "<redacted>", "name": "x"}, "seed": 1}
    assert mine.calls[-1] == ("finish", "failed", {"error": {"message": "refused <redacted>"}})
