from __future__ import annotations

import sys

import pytest

from composer_rl.errors import MissingExtraError
from composer_rl.trackers.tensorboard import TensorboardTracker

pytest.importorskip("tensorboard", reason="the tensorboard extra is not installed")


def read(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return events


def text(events, tag):
    return b"".join(value for event in events.Tensors(tag) for value in event.tensor_proto.string_val).decode()


def test_scalars_config_and_result_are_read_back(make_info, tmp_path, summary):
    tracker = TensorboardTracker()
    tracker.start(make_info())
    for step in (1, 2, 3):
        tracker.log({"reward": step / 10, "heldout/solve_rate": 0.5}, step=step)
    tracker.finish("succeeded", summary)
    events = read(tmp_path / "tensorboard")
    assert [event.step for event in events.Scalars("reward")] == [1, 2, 3]
    assert [event.value for event in events.Scalars("reward")] == pytest.approx([0.1, 0.2, 0.3])
    assert len(events.Scalars("heldout/solve_rate")) == 3
    assert '"loss_type": "dr_grpo"' in text(events, "config/text_summary")
    result = text(events, "result/text_summary")
    assert "status: succeeded" in result
    assert "heldout/solve_rate_after: 0.76" in result


def test_a_resumed_run_hides_what_lies_beyond_the_checkpoint(make_info, tmp_path):
    first = TensorboardTracker()
    first.start(make_info())
    for step in (1, 2, 3):
        first.log({"reward": 0.1}, step=step)
    first.finish("interrupted", {})
    second = TensorboardTracker()
    second.start(make_info(resume_step=1))
    second.log({"reward": 0.9}, step=2)
    second.finish("succeeded", {})
    scalars = read(tmp_path / "tensorboard").Scalars("reward")
    assert [(event.step, round(event.value, 3)) for event in scalars] == [(1, 0.1), (2, 0.9)]


def test_a_missing_package_names_the_extra(make_info, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"composer-rl\[tensorboard\]"):
        TensorboardTracker().start(make_info())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"subdirectory": ""}, "subdirectory must be"),
        ({"subdirectory": "/tmp"}, "subdirectory must be"),
        ({"subdirectory": "../x"}, "subdirectory must be"),
        ({"flush_s": 0}, "flush_s must be at least 1, got 0"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(ValueError, match=message):
        TensorboardTracker(**fields)
