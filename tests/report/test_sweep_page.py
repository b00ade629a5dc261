from __future__ import annotations

import json
import re

import pytest

from composer_rl.report import document, pictures
from composer_rl.report.sweep_page import report_runs, report_sweeps, write_sweep_report
from tests.report.make_run import HOSTILE
from tests.report.make_sweep import PRESETS, ArmPlan, write_sweep
from tests.report.test_page import Elements


@pytest.fixture(autouse=True)
def light(monkeypatch):
    """The figures' library is 5 MB, and drawing takes a browser: neither is the business of these tests."""
    monkeypatch.setattr(document, "plotly_source", lambda: "/* plotly */")
    monkeypatch.setattr(pictures, "CHROMIUM_NAMES", ())


def text_of(path):
    return " ".join(Elements(path.read_text(encoding="utf-8").replace("<wbr>", "")).text.split())


def test_a_sweep(tmp_path):
    path = write_sweep_report(write_sweep(tmp_path / "s", num_steps=12))
    assert path == tmp_path / "s" / "report.html"
    text = text_of(path)
    for words in (
        "composer_rl sweep report po_presets Does the objective matter on the testbed?",
        "objective heldout/solve_rate_after (higher is better) baseline po=dr_grpo arms 4 seeds 0, 1, 2, 3, 4 swept po",
        "date 2026-03-02 14:05 UTC",
        "20 jobs: 17 succeeded 1 failed 1 interrupted 1 missing",
        "tracker.wandb.api_key=<redacted>",
        "po=dapo 4 of 5 seed 3 failed",
        "better with 4 seeds (difference +",
        "void po.epsilon_high never acted (fully on-policy",
        "not separable with 3 seeds",
        "po.loss_type dr_grpo dapo by construction dr_grpo grpo by construction",
        "po.epsilon_high null 0.28 acted 0.28 never acted 0.0004 acted",
        "po.epsilon_high clip_ratio/high_mean never in 5 mean 0 4 of 4 mean 0.011 never in 5 mean 0 3 of 3 mean 0.011",
        "SandboxError: the template process died",
        "its process ended without a word",
        "An arm is void when nothing that differs acted",
    ):
        assert words in text, words
    assert "po.epsilon " not in text[text.index("What differs") : text.index("Engagement In how many")]
    assert (tmp_path / "s" / "report.csv").read_text().startswith("sweep,job,folder,arm,")
    assert "<s>po=<wbr>dr_<wbr>grpo_<wbr>clip_<wbr>higher</s>" in path.read_text()


def test_nothing_is_fetched_and_ids_are_unique(tmp_path):
    path = write_sweep_report(write_sweep(tmp_path, num_steps=4))
    page = Elements(path.read_text())
    sources = [attributes.get(name) for _, attributes in page.tags for name in ("src", "href", "action", "poster")]
    assert {source for source in sources if source and not source.startswith("#")} == {"data:,"}
    ids = re.findall(r'\sid="([^"]+)"', path.read_text())
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', path.read_text())) <= set(ids)


def test_markup_from_models_settings_and_errors_is_shown_not_run(tmp_path):
    arms = [
        ArmPlan(choice={"po": HOSTILE}),
        ArmPlan(choice={"po": "b" + HOSTILE}, skill=0.1, status={1: "failed"}),
    ]
    path = write_sweep_report(write_sweep(tmp_path, arms, num_seeds=2, num_steps=4, hostile=True))
    page = Elements(path.read_text())
    assert page.named("img") == []
    kinds = [attributes.get("type") for attributes in page.named("script")]
    assert [kind for kind in kinds if kind != "application/json"] == [None, None]
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert HOSTILE in page.text


LOST = ("empty", "torn", "failed", "running", "interrupted")


@pytest.mark.parametrize(
    ("status", "plan"), [*((status, plan) for status in LOST for plan in (True, False)), ("absent", True)]
)
def test_a_sweep_of_which_every_job_is_lost(tmp_path, status, plan):
    arms = [ArmPlan(choice={"po": name}, status=dict.fromkeys(range(2), status)) for name in ("a", "b")]
    text = text_of(write_sweep_report(write_sweep(tmp_path, arms, num_seeds=2, num_steps=4, plan=plan)))
    assert "No job has the figure heldout/solve_rate_after yet" in text
    assert "4 jobs: 4" in text


@pytest.mark.parametrize(
    "result",
    [
        "{",
        "[]",
        '{"status": "succeeded"}',
        json.dumps({"status": "succeeded", "config": {"a": [1]}, "engagement": [{}, 3], "seeds": {"seed": 1}}),
        json.dumps({"status": "succeeded", "config": {"a": 1}, "engagement": 7, "seeds": [], "metrics": {"x": "y"}}),
        json.dumps({"status": "failed", "config": {}, "error": {"message": None}, "choices": 3, "overrides": [None]}),
    ],
    ids=range(6),
)
def test_one_odd_job_does_not_break_the_page(tmp_path, result):
    folder = write_sweep(tmp_path, PRESETS[:2], num_seeds=2, num_steps=4)
    (folder / "1-00000001" / "result.json").write_text(result)
    (folder / "1-00000001" / "metrics.jsonl").write_bytes(b"\xff\x00 not json\n")
    (folder / "99-deadbeef").mkdir()
    text = text_of(write_sweep_report(folder))
    assert "99-deadbeef" in text
    assert "1-00000001" in text


def test_a_baseline_that_is_gone(tmp_path):
    text = text_of(
        write_sweep_report(write_sweep(tmp_path, PRESETS[:2], num_seeds=2, num_steps=4, baseline={"po": "x"}))
    )
    assert "no arm is the baseline po=x; there are: po=dr_grpo; po=dapo." in text
    assert "arms are compared with the first one, po=dr_grpo" in text


def test_several_sweeps_are_one_page(tmp_path):
    first = write_sweep(tmp_path / "first", PRESETS[:2], num_seeds=2, num_steps=4)
    second = write_sweep(tmp_path / "second", PRESETS[:1], num_seeds=3, num_steps=4, name="again", question="")
    written = report_sweeps([first, second], tmp_path / "new" / "merged")
    text = text_of(written.page)
    assert written.page == tmp_path / "new" / "merged" / "report.html"
    assert "po_presets + again" in text
    assert "2 jobs repeat the configuration and seed of another one: second/0-00000000, second/1-00000001." in text
    assert "6 jobs: 5 succeeded 1 missing" in text
    assert "second/2-00000002" in text
    assert "is installed" in written.remark
    quick = report_sweeps([first], tmp_path / "quick", pictures=False)
    assert (quick.pictures, quick.remark) == ((), "")


def test_two_runs_make_no_claim(tmp_path):
    folder = write_sweep(tmp_path / "s", PRESETS[:2], num_seeds=1, num_steps=4)
    runs = [folder / "0-00000000", folder / "1-00000001"]
    text = text_of(report_runs(runs, tmp_path / "out").page)
    assert "composer_rl comparison report po=dr_grpo vs po=dapo" in text
    assert "One seed an arm: no statistical claim is made." in text
    assert "not separable with 1 seed" in text
    assert "po.epsilon_high" in text
