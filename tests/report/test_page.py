from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from composer_rl.report import document
from composer_rl.report.page import seconds_in_words, write_report
from tests.report.make_run import HOSTILE, write_run
from tests.report.test_figures import contrast


class Elements(HTMLParser):
    """Start tags with attributes, and the text outside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.text += " "
        self.inside = tag if tag in ("script", "style") else self.inside
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = "" if tag == self.inside else self.inside

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data
        elif not self.inside:
            self.text += data

    def named(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(autouse=True)
def small_plotly(monkeypatch):
    """The figures' library is 5 MB and no business of these tests."""
    monkeypatch.setattr(document, "plotly_source", lambda: "/* plotly */")


def written(folder: Path) -> str:
    return write_report(folder).read_text(encoding="utf-8")


def test_a_finished_run(tmp_path):
    page = Elements(written(write_run(tmp_path)))
    text = " ".join(page.text.split())
    assert "swift-fig succeeded" in text
    for words in (
        "model tiny",
        "po dr_grpo",
        "loss policy_only",
        "seed 0",
        "started 2026-03-02 14:05 UTC",
        "duration 4 min 17 s",
        "revision 1f0c9a7e5d",
        "Held-out tasks solved 33.0% → 76.5%",
        "first attempt; 95%: 27–40% → 70–82%, 200 tasks",
        "Errors repaired 21.6% → 51.1%",
        "second turn; 95%: 15–29% → 37–65%, 134 and 47 errors",
        "po.epsilon clip_ratio/low_mean 0 never engaged clip_ratio/low_mean stayed at 0",
        "po.dynamic_sampling dynamic_sampling/rounds – not measured",
        "po.num_generations 8",
        "everything else",
        "max_steps null",
        "trl 1.16.0",
    ):
        assert words in text, words
    assert len(page.named("details")) > 24
    assert sum("rollout" in str(found.get("class")) for found in page.named("details")) == 24


def test_nothing_is_fetched(tmp_path):
    page = Elements(written(write_run(tmp_path)))
    sources = [attributes.get(name) for _, attributes in page.tags for name in ("src", "href", "action", "poster")]
    assert {source for source in sources if source and not source.startswith("#")} == {"data:,"}
    styles = document.TEMPLATES.joinpath("page.css").read_text()
    assert "url(" not in styles
    assert "@import" not in styles
    (policy,) = [found["content"] for found in page.named("meta") if "http-equiv" in found]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


def test_the_library_is_there_once_and_ids_are_unique(tmp_path):
    text = written(write_run(tmp_path))
    assert text.count("/* plotly */") == 1
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)


@pytest.mark.parametrize("status", ["succeeded", "failed"])
def test_markup_from_models_and_errors_is_shown_not_run(tmp_path, status):
    text = written(write_run(tmp_path, status=status, num_steps=20, hostile=True))
    page = Elements(text)
    assert page.named("img") == []
    kinds = [attributes.get("type") for attributes in page.named("script")]
    assert [kind for kind in kinds if kind != "application/json"] == [None, None]
    assert len(page.scripts) == len(kinds)
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert HOSTILE in page.text
    for script, kind in zip(page.scripts, kinds, strict=True):
        if kind == "application/json":
            assert set(json.loads(script)) == {"data", "layout"}
    data_kinds = [json.loads(found["data-kinds"]) for found in page.named("details") if "data-kinds" in found]
    assert any('"><script>' in kind for kinds in data_kinds for kind in kinds)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("running", "This run has not ended, or was killed: figures are as of step 20."),
        ("failed", "The run failed at step 20: RuntimeError the sandbox's template process ended"),
        ("interrupted", "The run was interrupted at step 20."),
        ("stopped", "The run was stopped at step 20."),
    ],
)
def test_runs_that_did_not_succeed(tmp_path, status, words):
    text = " ".join(Elements(written(write_run(tmp_path, status=status, num_steps=20))).text.split())
    assert words in text
    assert "Held-out tasks solved 3" in text


def test_a_run_that_failed_before_its_first_step(tmp_path):
    (tmp_path / "result.json").write_text('{"status": "failed", "error": "no model"}')
    text = " ".join(Elements(written(tmp_path)).text.split())
    assert "The run failed at step 0: error no model" in text
    assert "metrics.jsonl is missing." in text


@pytest.mark.parametrize("name", ["result.json", "metrics.jsonl", "rollouts.jsonl"])
def test_each_file_may_be_missing(tmp_path, name):
    write_run(tmp_path, num_steps=5)
    (tmp_path / name).unlink()
    assert f"{name} is missing." in written(tmp_path)


@pytest.mark.parametrize(
    "result",
    [
        {"status": None, "metrics": [], "engagement": {}, "seeds": 3, "choices": None, "platform": None, "error": None},
        {"config": {"a": {}, "b": [1], "c": None, "d": {"e": True}}, "started_at": "yesterday", "duration_s": "long"},
        {"status": "failed", "error": {}, "command": None, "overrides": None, "package_versions": None},
        {"engagement": [{}], "metrics": {"heldout/solve_rate_before": 1.7, "heldout/num_tasks": 5}},
    ],
    ids=range(4),
)
def test_results_of_another_shape(tmp_path, result):
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert "<h1>" in written(tmp_path)


def test_half_a_surrogate_pair_does_not_stop_the_page(tmp_path):
    write_run(tmp_path, num_steps=3)
    call = json.dumps({"name": "put", "arguments": {"code": "\ud800"}})
    line = {"step": 1, "split": "train", "task_id": "t", "turns": [{"text": call, "reward": 0.0}]}
    (tmp_path / "rollouts.jsonl").write_text(json.dumps(line) + "\n")
    assert "put" in written(tmp_path)


def test_the_same_task_is_linked(tmp_path):
    text = written(write_run(tmp_path))
    assert re.search(r'the same task: <a href="#late-\d+">step \d+</a>', text)


def test_what_is_no_run_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run folder"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_page_stays_when_writing_fails(tmp_path, monkeypatch):
    write_run(tmp_path, num_steps=3)
    write_report(tmp_path).write_text("earlier")
    monkeypatch.setattr(document.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_report(tmp_path)
    assert (tmp_path / "report.html").read_text() == "earlier"
    assert list(tmp_path.glob(".report.*")) == []


@pytest.mark.parametrize(
    ("seconds", "words"), [(3.21, "3.2 s"), (42, "42 s"), (257.3, "4 min 17 s"), (7500, "2 h 05 min")]
)
def test_seconds_in_words(seconds, words):
    assert seconds_in_words(seconds) == words


def schemes() -> list[dict[str, str]]:
    css = document.TEMPLATES.joinpath("page.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    return [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in (light, dark)]


@pytest.mark.parametrize("colors", schemes(), ids=["light", "dark"])
@pytest.mark.parametrize(
    ("text", "ground"),
    [
        ("text", "bg"), ("text", "card"), ("muted", "bg"), ("muted", "card"), ("link", "card"), ("muted", "code-bg"),
        ("good", "good-bg"), ("fair", "fair-bg"), ("bad", "bad-bg"),
        ("text", "code-bg"), ("keyword", "code-bg"), ("string", "code-bg"), ("number", "code-bg"), ("name", "code-bg"),
    ],
)  # fmt: skip
def test_text_is_readable(colors, text, ground):
    assert contrast(colors[text], colors[ground]) >= 4.5
