"""report.html of a run: its headline figures, curves, rollouts and configuration."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

from composer_rl.report.collect import RunData, load_run
from composer_rl.report.document import render, script_json, write_page
from composer_rl.report.figures import KIND_COLORS, timing_parts
from composer_rl.report.panels import describe, run_panels
from composer_rl.report.rollouts import RolloutView, choose, view
from composer_rl.report.settings import as_text, flatten
from composer_rl.report.statistics import wilson_interval
from composer_rl.report.words import count, date, percent, seconds_in_words

REPORT_FILE = "report.html"
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
    write_page(target, page)
    return target


def render_page(run: RunData, *, rollouts_per_side: int = 12) -> str:
    """The page of one run as HTML."""
    panels = run_panels(run)
    early, late = choose(run.rollouts, per_side=rollouts_per_side)
    chosen = (("early", "Early training", early), ("late", "Late training", late))
    sides = [_Side(name, title, [view(record) for record in records]) for name, title, records in chosen if records]
    shown = [rollout for side in sides for rollout in side.rollouts]
    return render(
        "page.html",
        ("figures.js", "page.js"),
        run=run,
        result=run.result,
        title=str(run.result.get("run_name") or run.result.get("run_id") or run.run_dir.name),
        facts=_facts(run),
        tiles=_tiles(run),
        panels=[{"panel": panel, "words": describe(panel), "json": script_json(panel.figure)} for panel in panels],
        timings=_timing_rows(run),
        sides=sides,
        twins=_twins(sides),
        steps=sorted({rollout.step for rollout in shown}),
        kinds=sorted({kind for rollout in shown for kind in rollout.error_kinds}),
        kind_colors=KIND_COLORS,
        config=[(path, as_text(value)) for path, value in flatten(_mapping(run.result.get("config")))],
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
        facts.append(("started", date(str(started))))
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
            f"{count(speed.ends(len(speed))[0])} a second" if speed is not None and len(speed) else "seen in training"
        )
        tiles.append({"label": "Tokens", "before": "", "value": count(tokens.values[-1]), "note": note})
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
        "before": percent(before) if before is not None and after is not None else "",
        "value": percent(after if after is not None else before),
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
