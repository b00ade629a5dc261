"""The page of a sweep in a real browser: switches, menus, rollouts and pictures, with a silent console."""

from __future__ import annotations

import html
import json
import re

import pytest

from composer_rl.report.document import csp_hash
from composer_rl.report.sweep_page import report_sweeps
from tests.report.make_sweep import PRESETS, write_sweep
from tests.report.test_browser import CHROMIUM, browse

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = write_sweep(tmp_path_factory.mktemp("sweep"), num_steps=10)
    return report_sweeps([folder], folder)


def test_pictures_are_drawn(written):
    assert written.remark == ""
    names = [path.name for path in written.pictures]
    assert names == [f"report-{name}.png" for name in ("objective", "finals", "differences", "reward", "entropy")]
    for path in written.pictures:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG")
        assert int.from_bytes(content[16:20], "big") == 1720  # Width in pixels.
        assert 5_000 < len(content) < 300_000


@pytest.mark.parametrize("width", [1280, 500])
def test_every_figure_is_drawn_and_the_console_is_silent(written, tmp_path, width):
    document, console = browse(written.page.as_uri(), tmp_path / "profile", width=width)
    assert console == []
    num_plots = len(re.findall(r'class="plot[ "]', document))
    assert num_plots == 5
    assert document.count('data-drawn="yes"') == num_plots
    assert "4 of 4 arms, 5 of 5 seeds" in document
    assert "on both sides" in document


def test_hostile_names_do_nothing(tmp_path):
    folder = write_sweep(tmp_path / "s", PRESETS[:2], num_seeds=2, num_steps=4, hostile=True)
    document, console = browse(report_sweeps([folder], folder).page.as_uri(), tmp_path / "profile")
    assert console == []
    assert "<img" not in document


PROBE = """
const answers = {};
const wait = (ms = 60) => new Promise((resolve) => setTimeout(resolve, ms));
const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
const plot = (name) => document.getElementById(`plot-${name}`);
const arms = (name) => [...new Set(plot(name).data.filter((t) => t.meta).map((t) => t.meta.arm))];
const arm = (index) => document.querySelector(`.switch[data-arm="${index}"]`);
const seed = (index) => document.querySelector(`.switch[data-seed="${index}"]`);
const jobs = () => [...document.querySelectorAll("#jobs tbody tr:not([hidden])")].length;
const change = (id, value) => {
  const control = document.getElementById(id);
  if (typeof value === "boolean") control.checked = value; else control.value = value;
  control.dispatchEvent(new Event("change"));
};
(async () => {
  while (document.querySelectorAll('.plot[data-drawn="yes"]').length < 5) await wait();
  answers.all = [arms("objective"), arms("finals"), arms("differences"), jobs()];
  arm(1).click(); await wait();
  answers.without = [arms("objective"), arms("finals"), arms("differences"), jobs()];
  answers.pressed = arm(1).getAttribute("aria-pressed");
  answers.verdictStays = document.querySelector('#verdicts tr[data-arm="1"]').getClientRects().length > 0;
  answers.columnGone = document.querySelector('#differences th[data-arm="1"]').hidden;
  arm(1).click();
  seed(0).click(); await wait();
  const lines = plot("objective").data;
  answers.aloneLines = lines.every((t) => t.meta.seed !== undefined && t.meta.seed !== 0) && lines.length;
  answers.dots = plot("finals").data.map((t) => t.x.length);
  answers.jobsOfSeeds = jobs();
  document.getElementById("show-all").click(); await wait();
  answers.shown = document.getElementById("shown").textContent;
  change("each-seed", true); await wait();
  answers.both = ["all_seeds", "seed"].every((key) => plot("objective").data.some((trace) => key in trace.meta));
  change("each-seed", false);
  arm(2).dispatchEvent(new MouseEvent("dblclick")); await wait();
  answers.only = arms("objective");
  document.getElementById("show-all").click();

  const rows = () => [...document.querySelectorAll("#pairs > .sides")];
  const names = () => rows()[0].textContent.match(/po=\\w+/g);
  answers.pair = names();
  change("right", "3"); await wait();
  answers.chosen = names();
  const tasks = (row) => [...row.querySelectorAll(".sample")].map((sample) => sample.dataset.task);
  answers.sameTask = tasks(rows()[0]).length === 2 && tasks(rows()[0])[0] === tasks(rows()[0])[1];
  change("common", true); await wait();
  answers.allCommon = rows().length > 0 && rows().every((row) => tasks(row).length === 2);
  change("right", "0"); await wait();
  const ids = [...document.querySelectorAll("#pairs [id]")].map((element) => element.id);
  answers.uniqueIds = new Set(ids).size === ids.length;
  press("j"); const first = document.activeElement.closest(".rollout").id;
  press("j"); const second = document.activeElement.closest(".rollout").id;
  answers.moved = first !== second;
  document.activeElement.click(); await wait();
  answers.opened = document.getElementById(second).open;
  answers.read = document.getElementById(second).querySelector(".turn").getClientRects().length > 0;

  let saved = null;
  HTMLAnchorElement.prototype.click = function () { saved = [this.download, this.href.slice(0, 22)]; };
  document.querySelector('.save[data-plot="plot-finals"]').click();
  for (let tries = 0; !saved && tries < 100; tries += 1) await wait();
  answers.saved = saved;
  answers.noSideScroll = document.documentElement.scrollWidth <= document.documentElement.clientWidth;
  const out = document.createElement("pre");
  out.id = "answers";
  out.textContent = JSON.stringify(answers);
  document.body.append(out);
})();
"""


@pytest.mark.parametrize("width", [1280, 500])
def test_switches_menus_rollouts_and_saving(written, tmp_path, width):
    text = written.page.read_text()
    # The probe is a foreign script: it is let in by its hash, so that the policy holds for the page's own.
    text = text.replace("script-src ", f"script-src '{csp_hash(PROBE)}' ", 1)
    page = tmp_path / "page.html"
    page.write_text(text.replace("</body>", f"<script>{PROBE}</script></body>"))
    document, console = browse(page.as_uri(), tmp_path / "profile", width=width)
    assert console == []
    found = re.search(r'<pre id="answers">(.*?)</pre>', document, re.DOTALL)
    assert found, "the probe did not come to its end"
    answers = json.loads(html.unescape(found[1]))
    assert answers == {
        "all": [[0, 1, 2, 3], [0, 1, 2, 3], [1, 3], 20],
        "without": [[0, 2, 3], [0, 2, 3], [3], 15],
        "pressed": "false",
        "verdictStays": True,
        "columnGone": True,
        "aloneLines": 15,
        "dots": [4, 3, 4, 2],
        "jobsOfSeeds": 16,
        "shown": "4 of 4 arms, 5 of 5 seeds",
        "both": True,
        "only": [2],
        "pair": ["po=dr_grpo", "po=dapo"],
        "chosen": ["po=dr_grpo", "po=gspo_with_a_name_that_is_rather_long_for_a_figure"],
        "sameTask": True,
        "allCommon": True,
        "uniqueIds": True,
        "moved": True,
        "opened": True,
        "read": True,
        "saved": ["finals.png", "data:image/png;base64,"],
        "noSideScroll": True,
    }
