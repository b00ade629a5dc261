"""The page in a real browser: figures are drawn, nothing fails on the console, controls work."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest

from composer_rl.report.page import write_report
from tests.report.make_run import write_run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--virtual-time-budget=20000",
    "--enable-logging=stderr", "--v=0", "--dump-dom",
)  # fmt: skip


def browse(url: str, profile, *, width: int = 1280) -> tuple[str, list[str]]:
    """The document after its scripts ran, and what they wrote to the console."""
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", f"--window-size={width},2000", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize(("width", "hostile"), [(1280, False), (480, True)])
def test_every_figure_is_drawn_and_the_console_is_silent(tmp_path, width, hostile):
    path = write_report(write_run(tmp_path / "run", hostile=hostile))
    document, console = browse(path.as_uri(), tmp_path / "profile", width=width)
    assert console == []
    num_plots = len(re.findall(r'class="plot[ "]', document))
    assert num_plots == 9
    assert document.count('data-drawn="yes"') == num_plots
    assert len(re.findall(r'<svg class="main-svg"', document)) >= num_plots
    assert "24 of 24 shown" in document
    assert "<img" not in document


def test_a_fault_on_the_console_would_be_seen(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<script>throw new Error('deliberate')</script>")
    _, console = browse(page.as_uri(), tmp_path / "profile")
    assert any("deliberate" in line for line in console)


def test_a_foreign_script_does_not_run(tmp_path):
    path = write_report(write_run(tmp_path / "run", num_steps=4))
    path.write_text(path.read_text().replace("<main>", "<main><script>document.title = 'hacked'</script>"))
    document, console = browse(path.as_uri(), tmp_path / "profile")
    assert "<title>hacked" not in document
    assert any("Content Security Policy" in line for line in console)


PROBE = """
const answers = {};
const press = (key, target = document.body) => target.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
const focused = () => document.activeElement.closest(".rollout")?.id ?? document.activeElement.name ?? "";
const wait = () => new Promise((resolve) => setTimeout(resolve, 50));
(async () => {
  await wait();
  const form = document.getElementById("filters");
  const shown = () => [...document.querySelectorAll(".rollout:not([hidden])")];
  press("j"); answers.first = focused();
  press("j"); answers.second = focused();
  press("k"); press("k"); answers.top = focused();
  form.elements.outcome.value = "solved";
  form.dispatchEvent(new Event("change"));
  answers.outcomes = [...new Set(shown().map((rollout) => rollout.dataset.outcome))];
  answers.count = document.getElementById("shown").textContent === `${shown().length} of 24 shown`;
  form.elements.outcome.value = "";
  form.elements.kind.value = "type_error";
  form.dispatchEvent(new Event("change"));
  answers.kinds = shown().length > 0 && shown().every((rollout) => rollout.textContent.includes("type_error"));
  form.reset(); await wait();
  answers.all = shown().length;
  press("f"); answers.filter = focused();
  press("j", document.activeElement); answers.typing = focused();
  document.querySelector("details.config").open = true;
  const search = document.getElementById("config-search");
  search.value = "PO epsilon";
  search.dispatchEvent(new Event("input"));
  answers.settings = [...document.querySelectorAll(".settings tr:not([hidden]) th")].map((cell) => cell.textContent);
  const last = document.getElementById("late-3");
  last.open = false;
  location.hash = "#late-3"; await wait();
  answers.opened = last.open;
  const out = document.createElement("pre");
  out.id = "answers";
  out.textContent = JSON.stringify(answers);
  document.body.append(out);
})();
"""


def test_keys_filters_search_and_links(tmp_path):
    path = write_report(write_run(tmp_path / "run"))
    text = re.sub(r"<meta http-equiv[^>]*>", "", path.read_text())  # The probe is a foreign script too.
    path.write_text(text.replace("</body>", f"<script>{PROBE}</script></body>"))
    document, console = browse(path.as_uri(), tmp_path / "profile")
    assert console == []
    found = re.search(r'<pre id="answers">(.*?)</pre>', document, re.DOTALL)
    assert found, "the probe did not come to its end"
    assert json.loads(html.unescape(found[1])) == {
        "first": "early-1",
        "second": "early-2",
        "top": "early-1",
        "outcomes": ["solved"],
        "count": True,
        "kinds": True,
        "all": 24,
        "filter": "outcome",
        "typing": "outcome",
        "settings": ["po.epsilon"],
        "opened": True,
    }
