"""The streaming tally: means, counts, thresholds in three directions, checkpoints."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_rl.engagement import STEPS_BEFORE_WARNING, EngagementTable, Knob, engagement_metrics, knobs_of


def row_after(knob: Knob, values: list[float | None]) -> tuple[float | None, bool | None, str]:
    table = EngagementTable([knob])
    for value in values:
        table.observe({knob.metric: value, "other": 1.0})
    (row,) = table.rows()
    assert (row.knob, row.metric) == (knob.name, knob.metric)
    return row.value, row.engaged, row.note


def test_a_knob_that_acted_says_how_often_and_how_strongly() -> None:
    value, engaged, note = row_after(Knob(name="po.epsilon", metric="clip"), [0.0, 0.1, 0.3, 0.0])
    assert value == pytest.approx(0.1)
    assert engaged is True
    assert note == "acted in 2 of 4 logged steps, strongest clip = 0.3"


def test_a_knob_that_stayed_at_its_threshold_never_engaged() -> None:
    knob = Knob(name="k", metric="m", advice="try more")
    assert row_after(knob, [0.0, 1e-12]) == (
        pytest.approx(5e-13),
        False,
        "never engaged: m stayed at 0 in 2 logged steps; try more",
    )


def test_below_and_away_have_their_own_direction() -> None:
    below = Knob(name="k", metric="m", acts="below", threshold=1.0)
    assert row_after(below, [1.0, 1.5])[1] is False
    assert row_after(below, [1.0, 0.25])[1:] == (True, "acted in 1 of 2 logged steps, strongest m = 0.25")
    away = Knob(name="k", metric="m", acts="away", threshold=1.0)
    assert row_after(away, [1.0])[1] is False
    assert row_after(away, [0.5, 1.2])[2].endswith("strongest m = 0.5")


def test_what_was_never_logged_is_not_measured_or_inert_by_its_settings() -> None:
    assert row_after(Knob(name="k", metric="m"), []) == (None, None, "not measured: m was never logged")
    assert row_after(Knob(name="k", metric="m"), [None, math.nan, math.inf])[1] is None
    inert = Knob(name="k", metric="m", inert_reason="the cap is open")
    assert row_after(inert, []) == (None, False, "never engaged: the cap is open")
    table = EngagementTable([Knob(name="k", metric="m", optional=True)])
    assert table.rows() == []


def test_two_knobs_may_share_a_metric_but_not_a_name() -> None:
    table = EngagementTable([Knob(name="a", metric="m"), Knob(name="b", metric="m", threshold=2.0)])
    table.observe({"m": 1.0})
    assert [row.engaged for row in table.rows()] == [True, False]
    with pytest.raises(ValueError, match="unique names, repeated: a"):
        EngagementTable([Knob(name="a", metric="m"), Knob(name="a", metric="n")])


def test_flat_metrics_leave_out_what_was_not_measured() -> None:
    table = EngagementTable([Knob(name="po.a", metric="m"), Knob(name="po.b", metric="n")])
    table.observe({"m": 0.5})
    assert engagement_metrics(table.rows()) == {"engagement/po.a": 0.5}


@given(st.lists(st.floats(-5, 5), max_size=20), st.integers(0, 20))
def test_a_tally_continues_through_json(values: list[float], cut: int) -> None:
    knobs = [Knob(name="k", metric="m"), Knob(name="j", metric="m", acts="away", threshold=1.0)]
    whole, first, second = EngagementTable(knobs), EngagementTable(knobs), EngagementTable(knobs)
    for value in values:
        whole.observe({"m": value})
    for value in values[:cut]:
        first.observe({"m": value})
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for value in values[cut:]:
        second.observe({"m": value})
    assert second.rows() == whole.rows()


def test_a_checkpoint_with_other_knobs_is_refused() -> None:
    state = EngagementTable([Knob(name="a", metric="m")]).state_dict()
    with pytest.raises(ValueError, match=r"missing \['b'\], unknown \['a'\]"):
        EngagementTable([Knob(name="b", metric="m")]).load_state_dict(state)


def test_a_name_grows_by_what_holds_the_component() -> None:
    assert Knob(name="epsilon", metric="m").under("po").name == "po.epsilon"
    assert Knob(name="", metric="m").under("curriculum").name == "curriculum"
    assert knobs_of(object()) == []


def test_a_run_without_a_required_knob_is_void(caplog: pytest.LogCaptureFixture) -> None:
    needed, other = Knob(name="loss.x", metric="m", required=True), Knob(name="k", metric="m")
    table = EngagementTable([needed, other])
    assert table.void() == "loss.x not measured: m was never logged"
    for _ in range(STEPS_BEFORE_WARNING - 1):
        table.observe({"m": 0.0})
    assert not caplog.records
    for _ in range(2):
        table.observe({"m": 0.0})
    assert [record.getMessage() for record in caplog.records] == [
        "loss.x: never engaged: m stayed at 0 in 10 logged steps"
    ]
    assert table.void() == "loss.x never engaged: m stayed at 0 in 11 logged steps"
    table.observe({"m": 3.0})
    assert table.void() is None
