"""Figures as PNG files, drawn by an installed Chromium with the same library as the page.

Nothing else at run time needs a browser: without one the page is complete, and every figure on it has a button that
saves it as a picture.
"""

from __future__ import annotations

import base64
import html
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from composer_rl.errors import ComposerError
from composer_rl.report.document import plotly_source, script_json

if TYPE_CHECKING:
    import plotly.graph_objects as go

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 860, 400
"""Size in CSS pixels."""
_TEXT, _GRID = "#1b1f24", "#e3e7ec"
_TIMEOUT_S = 180
_DRAW = """
(async () => {
  const out = {};
  for (const block of document.querySelectorAll("script[type='application/json']")) {
    const figure = JSON.parse(block.textContent);
    const size = { width: figure.layout.width, height: figure.layout.height };
    out[block.id] = await Plotly.toImage(figure, { format: "png", scale: SCALE, ...size });
  }
  document.body.innerHTML = "<pre id='pictures'></pre>";
  document.getElementById("pictures").textContent = JSON.stringify(out);
})();
"""


class NoBrowserError(ComposerError):
    """No Chromium is installed, so that no picture can be drawn."""


def find_browser() -> str:
    """Path of an installed Chromium. Raises NoBrowserError without one."""
    browser = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if browser is None:
        raise NoBrowserError(f"none of {', '.join(CHROMIUM_NAMES)} is installed: apt-get install chromium")
    return browser


def write_pictures(
    figures: Mapping[str, go.Figure], folder: Path, *, prefix: str = "", scale: float = 2.0
) -> list[Path]:
    """Draw figures on white and write `<prefix><name>.png` for each, with `scale` pixels for a CSS pixel.

    Returns the paths.

    Raises:
        NoBrowserError: without Chromium.
        RuntimeError: when it draws nothing.
    """
    if not figures:
        return []
    browser = find_browser()
    blocks = "".join(
        f'<script type="application/json" id="{html.escape(name)}">{script_json(on_white(figure))}</script>'
        for name, figure in figures.items()
    )
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "figures.html"
        script = _DRAW.replace("SCALE", str(scale))
        page.write_text(
            f"<!doctype html><meta charset='utf-8'><body>{blocks}<script>{plotly_source()}</script>"
            f"<script>{script}</script></body>",
            encoding="utf-8",
        )
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={scratch}/profile", "--virtual-time-budget=60000", "--dump-dom", page.as_uri(),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    found = re.search(r"<pre id=\"pictures\">(.*?)</pre>", done.stdout, re.DOTALL)
    if found is None:
        raise RuntimeError(f"{browser} drew nothing: {done.stderr[-500:]}")
    paths = []
    for name, address in json.loads(html.unescape(found[1])).items():
        path = folder / f"{prefix}{name}.png"
        path.write_bytes(base64.b64decode(address.partition(",")[2]))
        paths.append(path)
    return paths


def on_white(figure: go.Figure) -> go.Figure:
    """A copy in the colours of a white page, with a legend, of a fixed size."""
    import plotly.graph_objects as go

    copy = go.Figure(figure)
    copy.update_layout(
        paper_bgcolor="white",
        plot_bgcolor="white",
        width=WIDTH,
        height=figure.layout.height or HEIGHT,
        margin={"l": 72, "r": 24, "t": 16, "b": 56},
        font={"family": "system-ui, sans-serif", "size": 14, "color": _TEXT},
    )
    for update in (copy.update_xaxes, copy.update_yaxes):
        update(gridcolor=_GRID, linecolor=_GRID, automargin=True, title={"font": {"size": 14}})
    return copy
