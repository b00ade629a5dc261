"""report.html of a sweep, or of runs side by side, with its figures as PNG and its jobs as CSV."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_rl.config.record import write_atomically
from composer_rl.errors import ConfigError
from composer_rl.report.document import render, script_json, write_page
from composer_rl.report.figures import KIND_COLORS
from composer_rl.report.panels import Panel
from composer_rl.report.settings import as_text
from composer_rl.report.statistics import Estimate, Verdict, VerdictKind
from composer_rl.report.sweep.arms import Grouping, group_runs, group_sweeps
from composer_rl.report.sweep.comparison import ArmResult, Comparison, compare
from composer_rl.report.sweep.cost import cost_of, total
from composer_rl.report.sweep.evidence import Acted, Evidence
from composer_rl.report.sweep.figures import color_of
from composer_rl.report.sweep.jobs import Job, Sweep, load_runs, load_sweep
from composer_rl.report.sweep.panels import in_words, sweep_panels
from composer_rl.report.sweep.recipe import ABSENT, differing
from composer_rl.report.sweep.rollouts import samples
from composer_rl.report.sweep.table import jobs_csv
from composer_rl.report.words import date

REPORT_FILE = "report.html"
TABLE_FILE = "report.csv"
PICTURE_PREFIX = "report-"

_VERDICT_CHIPS = {
    VerdictKind.BETTER: "good",
    VerdictKind.WORSE: "bad",
    VerdictKind.NOT_SEPARABLE: "fair",
    VerdictKind.VOID: "bad",
}
"""Colour of the word in front of a verdict."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Written:
    """Files of a report."""

    page: Path
    table: Path
    pictures: tuple[Path, ...]
    remark: str = ""
    """Why there are no pictures; empty where there are."""


def write_sweep_report(sweep_dir: Path, *, pictures: bool = True) -> Path:
    """Write the report of a sweep into its folder, whatever state its jobs are in, and return the page's path.

    `report.html`, `report.csv` and, where Chromium is installed, `report-<figure>.png`; drawing them takes a few
    seconds, which `pictures=False` saves while a sweep still runs.

    Raises FileNotFoundError when the folder holds neither sweep.json nor job folders.
    """
    written = report_sweeps([sweep_dir], sweep_dir, pictures=pictures)
    if written.remark:
        _LOG.info("no pictures of figures: %s", written.remark)
    return written.page


def report_sweeps(
    folders: Sequence[Path],
    target: Path,
    *,
    objective: str = "",
    baseline: Mapping[str, str] | str | None = None,
    pictures: bool = True,
) -> Written:
    """Write one report of several sweeps, merged by arm, into the folder `target`.

    Args:
        folders: Sweep folders; the first one that names an objective, a direction or a baseline decides.
        target: Made where it does not exist.
        objective: Final figure to compare by, in place of the sweeps' own.
        baseline: Choice or label of the arm to compare with, in place of the sweeps' own.
        pictures: Draw the figures as PNG too.

    Raises:
        FileNotFoundError: for a folder that holds no sweep.
        ConfigError: for a `baseline` that is no arm.
    """
    sweeps = [load_sweep(folder) for folder in folders]
    grouping = group_sweeps(sweeps)
    lead = next((sweep for sweep in sweeps if sweep.objective), sweeps[0])
    about = _about(sweeps)

    def compared(with_arm: Mapping[str, str] | str | None) -> Comparison:
        return compare(
            grouping,
            objective=objective or lead.objective,
            minimize=lead.minimize if lead.objective and not objective else None,
            baseline=with_arm,
        )

    if baseline:
        return _write(compared(baseline), target, pictures, **about)
    try:
        comparison = compared(next((sweep.baseline for sweep in sweeps if sweep.baseline), None))
    except ConfigError as error:  # A sweep that lost the jobs of its baseline still has a page.
        about["problems"].append(f"{error}.")
        comparison = compared(None)
    return _write(comparison, target, pictures, **about)


def report_runs(folders: Sequence[Path], target: Path, *, objective: str = "") -> Written:
    """Write a report of single runs, each an arm of its own and the first one the baseline, into the folder `target`.

    Raises FileNotFoundError for a folder without a run.
    """
    grouping: Grouping = group_runs(load_runs(folders))
    comparison = compare(grouping, objective=objective, baseline=grouping.arms[0].label)
    command = ("composer-rl", "compare", *(folder.name for folder in folders))
    return _write(
        comparison,
        target,
        True,
        kind="comparison",
        title=" vs ".join(arm.label for arm in grouping.arms),
        questions=[],
        problems=[],
        commands=[" ".join(command)],
        created=min((_started(job) for arm in grouping.arms for job in arm.jobs), default=""),
    )


def _about(sweeps: Sequence[Sweep]) -> dict[str, Any]:
    return {
        "kind": "sweep",
        "title": " + ".join(dict.fromkeys(sweep.name for sweep in sweeps)),
        "questions": list(dict.fromkeys(sweep.question for sweep in sweeps if sweep.question)),
        "problems": [problem for sweep in sweeps for problem in sweep.problems],
        "commands": list(dict.fromkeys(" ".join(sweep.command) for sweep in sweeps if sweep.command)),
        "created": min((sweep.created for sweep in sweeps if sweep.created), default=""),
    }


def _write(comparison: Comparison, target: Path, pictures: bool, **about: Any) -> Written:
    target.mkdir(parents=True, exist_ok=True)
    panels = sweep_panels(comparison)
    page = target / REPORT_FILE
    write_page(page, _page(comparison, panels, **about))
    table = target / TABLE_FILE
    write_atomically(table, jobs_csv(comparison))
    drawn, remark = _pictures(panels if pictures else [], target)
    return Written(page=page, table=table, pictures=drawn, remark=remark)


def _pictures(panels: Sequence[Panel], target: Path) -> tuple[tuple[Path, ...], str]:
    """Paths of the PNG files, and why there are none: the page does not depend on them."""
    import subprocess

    from composer_rl.report.pictures import NoBrowserError, write_pictures

    for old in target.glob(f"{PICTURE_PREFIX}*.png"):
        old.unlink()
    try:
        figures = {panel.name: panel.figure for panel in panels}
        return tuple(write_pictures(figures, target, prefix=PICTURE_PREFIX)), ""
    except (NoBrowserError, RuntimeError, OSError, subprocess.TimeoutExpired) as failure:
        return (), str(failure)


def _page(comparison: Comparison, panels: Sequence[Panel], **about: Any) -> str:
    costs = {result.index: cost_of(result) for result in comparison.results}
    about["problems"] = _problems(comparison, about["problems"])
    return render(
        "sweep/page.html",
        ("figures.js", "sweep/page.js"),
        **about,
        comparison=comparison,
        results=comparison.results,
        colors={result.index: color_of(result) for result in comparison.results},
        facts=_facts(comparison, about["created"]),
        panels=[
            {"panel": panel, "words": in_words(panel, comparison), "json": script_json(panel.figure)}
            for panel in panels
        ],
        differences=_differences(comparison),
        engagement=_engagement(comparison),
        costs=costs,
        total_cost=total(list(costs.values())),
        samples=samples(comparison),
        kind_colors=KIND_COLORS,
        number=_number,
        interval=_interval,
        difference=_difference,
        verdict_chip=_VERDICT_CHIPS,
        verdict_words=_verdict_words,
        Acted=Acted,
    )


def _problems(comparison: Comparison, problems: Sequence[str]) -> list[str]:
    found = list(problems)
    if comparison.strays:
        names = ", ".join(f"{job.name} ({job.error or job.status})" for job in comparison.strays)
        found.append(
            f"{_jobs(len(comparison.strays))} belong to no arm, because nothing tells their settings: {names}."
        )
    if comparison.repeats:
        names = ", ".join(f"{job.sweep}/{job.name}" for job in comparison.repeats)
        found.append(f"{_jobs(len(comparison.repeats))} repeat the configuration and seed of another one: {names}.")
    if seedless := [job for result in comparison.results for job in result.arm.jobs if job.seed is None]:
        names = ", ".join(job.name for job in seedless)
        found.append(f"{_jobs(len(seedless))} have no seed and are in no figure: {names}.")
    return found


def _jobs(num: int) -> str:
    return "1 job" if num == 1 else f"{num} jobs"


def _facts(comparison: Comparison, created: str) -> list[tuple[str, str]]:
    objective = comparison.objective
    facts = [
        ("objective", f"{objective.metric} ({'lower' if objective.minimize else 'higher'} is better)"),
        ("baseline", comparison.baseline.arm.label),
        ("arms", str(len(comparison.results))),
        ("seeds", ", ".join(map(str, comparison.seeds)) or "none"),
    ]
    if comparison.knobs:
        facts.append(("swept", ", ".join(comparison.knobs)))
    if created:
        facts.append(("date", date(created)))
    return facts


def _differences(comparison: Comparison) -> list[dict[str, Any]]:
    """Settings that are not the same in all arms: value by arm, and the evidence where it differs from the baseline."""
    recipes = {result.index: result.arm.recipe for result in comparison.results if result.arm.recipe is not None}
    rows = []
    for path in differing(recipes.values()):
        evidence: dict[int, Evidence] = {
            result.index: item for result in comparison.results for item in result.evidence if item.setting == path
        }
        values = {index: as_text(recipe.get(path, ABSENT)) for index, recipe in recipes.items()}
        rows.append({"setting": path, "values": values, "evidence": evidence})
    return rows


def _engagement(comparison: Comparison) -> list[dict[str, Any]]:
    """Knobs of any job: metric, and by arm in how many jobs of how many it engaged, with the mean of its metric."""
    rows: dict[str, dict[str, Any]] = {}
    for result in comparison.results:
        for job in result.arm.jobs:
            for found in job.run.engagement if job.run is not None else ():
                row = rows.setdefault(
                    str(found.get("knob")), {"knob": str(found.get("knob")), "metric": found.get("metric"), "arms": {}}
                )
                cell = row["arms"].setdefault(
                    result.index, {"engaged": 0, "jobs": 0, "measured": 0, "values": [], "note": ""}
                )
                cell["jobs"] += 1
                cell["engaged"] += found.get("engaged") is True
                cell["measured"] += isinstance(found.get("engaged"), bool)
                if isinstance(found.get("value"), int | float):
                    cell["values"].append(float(found["value"]))
                if found.get("engaged") is not True:
                    cell["note"] = str(found.get("note") or "")
    return list(rows.values())


def _started(job: Job) -> str:
    return str(job.run.result.get("started_at") or "") if job.run is not None else ""


def _number(value: float) -> str:
    """Three decimals, as verdicts have them; small and large figures with four digits."""
    return f"{value:.3f}" if value == 0 or 0.01 <= abs(value) < 100 else f"{value:.4g}"


def _interval(estimate: Estimate) -> str:
    """An interval in words; empty where it bounds nothing."""
    if not (math.isfinite(estimate.low) and math.isfinite(estimate.high)):
        return ""
    return f"{_number(estimate.low)} to {_number(estimate.high)}"


def _verdict_words(verdict: Verdict) -> str:
    """The sentence of a verdict without the word that a chip in front of it says."""
    return verdict.sentence.removeprefix(_spoken(verdict.kind)).removeprefix(": ")


def _spoken(kind: VerdictKind) -> str:
    return kind.replace("_", " ")


def _difference(result: ArmResult) -> tuple[str, str]:
    """Mean difference and its interval in words."""
    difference = result.verdict.difference if result.verdict is not None else None
    if difference is None or not math.isfinite(difference.mean):
        return "–", ""
    mean = f"{difference.mean:+z.3f}"
    if not difference.has_interval:
        return mean, "no interval"
    return mean, f"{difference.low:+z.3f} to {difference.high:+z.3f}"
