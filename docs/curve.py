"""Draw the held-out curve of a run as the picture of the README: `python docs/curve.py <run folder> [docs/curve.png]`.

For whoever updates the README; needs Chromium (`apt-get install chromium`), which takes the picture. No part of the
package: nothing at run time needs a browser.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from composer_rl.report.collect import load_run
from composer_rl.report.figures import heldout_figure

WIDTH, HEIGHT, SCALE = 860, 340, 1.5
"""Size in CSS pixels, and picture pixels for each of them."""
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")


def curve_html(run_dir: Path) -> str:
    """The figure alone on a white page of WIDTH x HEIGHT. Raises ValueError for a run without held-out figures."""
    figure = heldout_figure(load_run(run_dir))
    if figure is None:
        raise ValueError(f"{run_dir} has no held-out figures in metrics.jsonl")
    figure.update_layout(
        paper_bgcolor="white",
        plot_bgcolor="white",
        width=WIDTH,
        height=HEIGHT,
        margin={"l": 64, "r": 24, "t": 16, "b": 52},
        font={"family": "system-ui, sans-serif", "size": 14, "color": "#1b1f24"},
    )
    figure.update_xaxes(gridcolor="#e3e7ec", linecolor="#e3e7ec")
    figure.update_yaxes(gridcolor="#e3e7ec", title="held-out tasks")
    div = figure.to_html(full_html=False, include_plotlyjs=True, config={"staticPlot": True})
    return f"<!doctype html><meta charset='utf-8'><body style='margin:0;background:white'>{div}</body>"


def write_curve(run_dir: Path, target: Path) -> Path:
    """Take the picture. Raises FileNotFoundError without Chromium, RuntimeError when it writes nothing."""
    browser = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if browser is None:
        raise FileNotFoundError(f"none of {', '.join(CHROMIUM_NAMES)} is installed: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "curve.html"
        page.write_text(curve_html(run_dir), encoding="utf-8")
        picture = Path(folder) / "curve.png"
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
            f"--user-data-dir={folder}/profile", f"--window-size={WIDTH},{HEIGHT}",
            f"--force-device-scale-factor={SCALE}", "--virtual-time-budget=10000", f"--screenshot={picture}",
            page.as_uri(),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if not picture.is_file():
            raise RuntimeError(f"{browser} took no picture: {done.stderr[-500:]}")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(picture, target)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run_dir", type=Path, help="folder with metrics.jsonl and result.json")
    parser.add_argument("target", type=Path, nargs="?", default=Path(__file__).parent / "curve.png")
    arguments = parser.parse_args()
    write_curve(arguments.run_dir, arguments.target)


if __name__ == "__main__":
    main()
