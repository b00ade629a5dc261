"""Draw the held-out curve of a run as the picture of the README: `python docs/curve.py <run folder> [docs/curve.png]`.

For whoever updates the README; needs Chromium (`apt-get install chromium`).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from composer_rl.report.collect import load_run
from composer_rl.report.figures import heldout_figure
from composer_rl.report.pictures import write_pictures

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEIGHT, SCALE = 340, 1.5
"""Height in CSS pixels, and picture pixels for each of them."""


def curve_figure(run_dir: Path) -> go.Figure:
    """The figure alone. Raises ValueError for a run without held-out figures."""
    figure = heldout_figure(load_run(run_dir))
    if figure is None:
        raise ValueError(f"{run_dir} has no held-out figures in metrics.jsonl")
    figure.update_layout(height=HEIGHT)
    figure.update_yaxes(title={"text": "held-out tasks"})
    return figure


def write_curve(run_dir: Path, target: Path) -> Path:
    """Draw the picture. Raises NoBrowserError without Chromium, RuntimeError when it draws nothing."""
    figure = curve_figure(run_dir)
    target.parent.mkdir(parents=True, exist_ok=True)
    (drawn,) = write_pictures({target.stem: figure}, target.parent, scale=SCALE)
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run_dir", type=Path, help="folder with metrics.jsonl and result.json")
    parser.add_argument("target", type=Path, nargs="?", default=Path(__file__).parent / "curve.png")
    arguments = parser.parse_args()
    write_curve(arguments.run_dir, arguments.target)


if __name__ == "__main__":
    main()
