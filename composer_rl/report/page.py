"""report.html: one file with everything in it, read without a network and without a server.

What a model or an error wrote is untrusted: templates escape every value, data blocks cannot close their script
element, and the page's Content-Security-Policy names the only two scripts that may run by their hash.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import math
import os
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from composer_rl.report.collect import RunData, load_run
from composer_rl.report.figures import KIND_COLORS, timing_parts
from composer_rl.report.panels import describe, run_panels
from composer_rl.report.rollouts import RolloutView, choose, view
from composer_rl.report.statistics import wilson_interval

if TYPE_CHECKING:
    from jinja2 import Environment

REPORT_FILE = "report.html"
_TEMPLATES = Path(__file__).parent / "templates"
_RATES = (
    ("heldout/solve_rate", "Held-out tasks solved", "first attempt", "heldout/num_tasks", "tasks"),
    ("heldout/recovery_rate", "Errors repaired", "held-out, second turn", "heldout/num_first_errors", "errors"),
    ("heldout/recovery_rate_frozen", "Frozen errors repaired", "same error sites before and after", "", ""),
)
"""Metric, label, note, and where the number of trials is, with what they are."""
_END = 5
"""Values averaged at either end of a noisy curve."""


class _Side(NamedTuple):
    """One column of rollouts."""

    name: str
    title: str
    rollouts: list[RolloutView]


def write_report(run_dir: Path, *, rollouts_per_side: int = 12) -> Path:
    """Write `report.html` into a run folder, whatever state the run is in, and return its path.

    Args:
        run_dir: Folder with result.json, metrics.jsonl and rollouts.jsonl; those that are missing are named on the
            page.
        rollouts_per_side: Rollouts shown from early and from late training each.

    Raises:
        FileNotFoundError: when the folder holds none of a run's files.
    """
    run = load_run(run_dir)
    page = render_page(run, rollouts_per_side=rollouts_per_side)
    target = run_dir / REPORT_FILE
    descriptor, draft = tempfile.mkstemp(dir=run_dir, prefix=".report.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            # Half a surrogate pair, which a model's JSON may hold, becomes "?".
            file.write(page.encode("utf-8", "replace"))
        os.chmod(draft, 0o644)
        os.replace(draft, target)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    return target


def render_page(run: RunData, *, rollouts_per_side: int = 12) -> str:
    """The page of one run as HTML."""
    panels = run_panels(run)
    early, late = choose(run.rollouts, per_side=rollouts_per_side)
    chosen = (("early", "Early training", early), ("late", "Late training", late))
    sides = [_Side(name, title, [view(record) for record in records]) for name, title, records in chosen if records]
    shown = [rollout for side in sides for rollout in side.rollouts]
    scripts = [_plotly_source(), (_TEMPLATES / "page.js").read_text(encoding="utf-8")]
    return (
        _environment()
        .get_template("page.html")
        .render(
            run=run,
            result=run.result,
            title=str(run.result.get("run_name") or run.result.get("run_id") or run.run_dir.name),
            facts=_facts(run),
            tiles=_tiles(run),
            panels=[{"panel": panel, "words": describe(panel), "json": _script_json(panel.figure)} for panel in panels],
            timings=_timing_rows(run),
            sides=sides,
            twins=_twins(sides),
            steps=sorted({rollout.step for rollout in shown}),
            kinds=sorted({kind for rollout in shown for kind in rollout.error_kinds}),
            kind_colors=KIND_COLORS,
            config=list(_flatten(_mapping(run.result.get("config")))),
            css=(_TEMPLATES / "page.css").read_text(encoding="utf-8"),
            plotly=scripts[0],
            script=scripts[1],
            script_hashes=[_csp_hash(script) for script in scripts],
        )
    )


def _twins(sides: list[_Side]) -> dict[str, list[tuple[str, int]]]:
    """Anchor and step of every rollout shown, by task."""
    twins: dict[str, list[tuple[str, int]]] = {}
    for side in sides:
        for index, rollout in enumerate(side.rollouts, start=1):
            twins.setdefault(rollout.task_id, []).append((f"{side.name}-{index}", rollout.step))
    return twins


def _facts(run: RunData) -> list[tuple[str, str]]:
    """What the run was, as label and value."""
    result = run.result
    choices = _mapping(result.get("choices"))
    facts = [(group, str(choices[group])) for group in ("stage", "model", "env", "po", "loss") if choices.get(group)]
    if seeds := _mapping(result.get("seeds")):
        facts.append(("seed", ", ".join(str(value) for value in dict.fromkeys(seeds.values()))))
    if started := result.get("started_at"):
        facts.append(("started", _date(str(started))))
    if (duration := run.duration_s) is not None:
        facts.append(("duration", seconds_in_words(duration)))
    if revision := result.get("git_revision"):
        facts.append(("revision", str(revision)[:10] + (" + changes" if result.get("git_dirty") else "")))
    if isinstance(cores := _mapping(result.get("platform")).get("cpu_count"), int):
        facts.append(("machine", f"{cores} CPU cores"))
    return facts


def _tiles(run: RunData) -> list[dict[str, str]]:
    """Headline figures: label, value, note; a `before` where there is one."""
    tiles = []
    for rate in _RATES:
        tile = _rate_tile(run, *rate)
        if tile is not None:
            tiles.append(tile)
    heldout = run.series.get("heldout/reward")
    if heldout is not None and len(heldout) > 1:
        first, last = heldout.ends(1)
        tiles.append({"label": "Held-out reward", "before": f"{first:.2f}", "value": f"{last:.2f}", "note": "mean"})
    reward = run.series.get("reward")
    if reward is not None and len(reward):
        first, last = reward.ends(_END)
        note = f"training, mean of {_END} steps at each end" if len(reward) > _END else "training"
        tiles.append({"label": "Reward", "before": f"{first:.2f}", "value": f"{last:.2f}", "note": note})
    tokens = run.series.get("num_tokens")
    if tokens is not None and len(tokens):
        speed = run.series.get("tokens_per_s")
        note = (
            f"{_count(speed.ends(len(speed))[0])} a second" if speed is not None and len(speed) else "seen in training"
        )
        tiles.append({"label": "Tokens", "before": "", "value": _count(tokens.values[-1]), "note": note})
    if run.duration_s is not None:
        note = f"{run.last_step} optimizer steps"
        tiles.append({"label": "Time", "before": "", "value": seconds_in_words(run.duration_s), "note": note})
    return tiles


def _rate_tile(run: RunData, name: str, label: str, note: str, trials: str, unit: str) -> dict[str, str] | None:
    """Before and after with intervals: from result.json, or from the curve of a run that has not ended well."""
    before, after = run.metrics.get(f"{name}_before"), run.metrics.get(f"{name}_after")
    series = run.series.get(name)
    if before is None and after is None and series is not None and len(series):
        before, after = series.values[0], series.values[-1] if len(series) > 1 else None
    if before is None and after is None:
        return None
    counts = run.series.get(trials)
    nums = (
        (counts.values[0], counts.values[-1]) if counts is not None and len(counts) else (run.metrics.get(trials),) * 2
    )
    ends = [(rate, num) for rate, num in zip((before, after), nums, strict=True) if rate is not None]
    ranges = [_interval(rate, num) for rate, num in ends if num is not None]
    if ranges:
        sizes = list(dict.fromkeys(f"{num:.0f}" for _, num in ends))
        note = f"{note}; 95%: {' → '.join(ranges)}, {' and '.join(sizes)} {unit}"
    return {
        "label": label,
        "before": _percent(before) if before is not None and after is not None else "",
        "value": _percent(after if after is not None else before),
        "note": note,
    }


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _interval(rate: float, num: float) -> str:
    if not 0.0 <= rate <= 1.0:
        return "–"
    low, high = wilson_interval(rate, num)
    return f"{100 * low:.0f}–{100 * high:.0f}%"


def _timing_rows(run: RunData) -> list[dict[str, Any]]:
    """Seconds in all, a step and as a share of the run, by part; what no part was timed for comes last."""
    totals = {name: math.fsum(series.values) for name, series in timing_parts(run)}
    timed = math.fsum(totals.values())
    whole = max(timed, run.duration_s or 0.0)
    if totals and whole > timed:
        totals["everything else"] = whole - timed
    num_steps = max(run.last_step, 1)
    return [
        {"name": name, "total_s": total, "step_s": total / num_steps, "share": total / whole if whole > 0 else 0.0}
        for name, total in totals.items()
    ]


def _flatten(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Dotted path and value of every leaf of the configuration, as one would type it on the command line."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flatten(item, f"{path}.{key}" if path else str(key))
    else:
        words = {None: "null", True: "true", False: "false"}
        plain = words.get(value) if value is None or isinstance(value, bool) else None
        yield path, plain or str(value)


def _script_json(figure: Any) -> str:
    """A figure as JSON that no script element ends inside of: every "<" is written as an escape."""
    return str(figure.to_json()).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _csp_hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode()


@functools.cache
def _plotly_source() -> str:
    from plotly.offline import get_plotlyjs

    # A parser turns CRLF into LF before the hash is taken.
    return str(get_plotlyjs()).replace("\r\n", "\n").replace("\r", "\n")


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["seconds"] = seconds_in_words
    environment.filters["percent"] = _percent
    return environment


def seconds_in_words(seconds: float) -> str:
    """`4 min 17 s`, `2 h 05 min`, `3.2 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def _percent(rate: float | None) -> str:
    return "–" if rate is None else f"{100 * rate:.1f}%"


def _count(number: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if unit == 'k' else size):.3g} {unit}"
    return f"{number:,.0f}".replace(",", " ")


def _date(text: str) -> str:
    try:
        return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M %Z").strip()
    except ValueError:
        return text
