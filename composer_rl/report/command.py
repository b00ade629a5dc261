"""The verbs report, compare and list of `composer-rl`: from words of the command line to files and lines."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from composer_rl.errors import ConfigError
from composer_rl.report.collect import RESULT_FILE
from composer_rl.report.sweep.jobs import SWEEP_FILE, job_folders

if TYPE_CHECKING:
    from composer_rl.report.sweep_page import Written

REPORTS = "reports"
"""Where reports of several folders go, below the current one."""


class _Parser(argparse.ArgumentParser):
    """Answers wrong words like the rest of the command line: with one line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog}: {message}")


def report(words: Sequence[str]) -> int:
    """`composer-rl report FOLDER ...`: the page of a run, or of one or several sweeps."""
    parser = _Parser(
        prog="composer-rl report",
        description="Write report.html of a run folder, or of one or several sweeps that are merged by arm.",
    )
    parser.add_argument("folders", nargs="+", type=_folder, metavar="folder", help="a run folder, or sweep folders")
    parser.add_argument("--baseline", default="", help="arm to compare with, such as po=dr_grpo")
    _common(parser)
    given = _parse(parser, words)
    if given is None:
        return 0
    folders: list[Path] = given.folders
    for folder in folders:
        if not (folder / RESULT_FILE).is_file() and not (folder / SWEEP_FILE).is_file() and not job_folders(folder):
            raise ConfigError(
                f"{folder} is no run folder: it has no {RESULT_FILE}; nor is it a sweep's, which has {SWEEP_FILE} or "
                "folders of jobs"
            )
    runs = [folder for folder in folders if (folder / RESULT_FILE).is_file()]
    if len(folders) == 1 and runs:
        _refuse_sweep_options(given, folders[0])
        from composer_rl.report.page import write_report

        sys.stdout.write(f"{write_report(folders[0])}\n")
        return 0
    if runs:
        raise ConfigError(f"{runs[0]} is a run; compare runs with: composer-rl compare RUN RUN")
    from composer_rl.report.sweep_page import report_sweeps

    target = given.to or (folders[0] if len(folders) == 1 else _new_folder(folders))
    _say(report_sweeps(folders, target, objective=given.objective, baseline=given.baseline or None))
    return 0


def compare(words: Sequence[str]) -> int:
    """`composer-rl compare RUN RUN`: the page of a sweep for single runs, the first one the baseline."""
    parser = _Parser(
        prog="composer-rl compare",
        description="Write a page that shows two runs side by side, the first one as the baseline.",
    )
    parser.add_argument("runs", nargs="+", type=_folder, metavar="run", help="run folders")
    _common(parser)
    given = _parse(parser, words)
    if given is None:
        return 0
    runs: list[Path] = given.runs
    if len(runs) < 2:
        raise ConfigError(f"composer-rl compare takes two run folders, got {len(runs)}")
    from composer_rl.report.sweep_page import report_runs

    target = given.to or _new_folder(runs)
    try:
        written = report_runs(runs, target, objective=given.objective)
    except FileNotFoundError as error:
        raise ConfigError(str(error)) from error
    _say(written)
    return 0


def list_entries(words: Sequence[str]) -> int:
    """`composer-rl list [FOLDER ...]`: runs and sweeps, the newest first."""
    from composer_rl.report.listing import ROOTS, as_json, find_entries, write_table

    parser = _Parser(
        prog="composer-rl list", description="List runs and sweeps with their status, main figures and date."
    )
    parser.add_argument(
        "folders", nargs="*", type=_folder, metavar="folder", help=f"where to look, by default {' and '.join(ROOTS)}"
    )
    parser.add_argument("--json", action="store_true", help="write a JSON list")
    given = _parse(parser, words)
    if given is None:
        return 0
    entries = find_entries(given.folders or [Path.cwd() / root for root in ROOTS])
    if given.json:
        sys.stdout.write(as_json(entries) + "\n")
    elif entries:
        write_table(entries)
    else:
        sys.stderr.write("no runs and no sweeps here\n")
    return 0


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--objective", default="", help="final figure to compare by, such as heldout/solve_rate_after")
    parser.add_argument(
        "--to", type=lambda word: Path(os.path.abspath(word)), metavar="FOLDER", help="where to write the report"
    )


def _parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace | None:
    """The words as settings; None after --help, which has been written then."""
    try:
        return parser.parse_args(list(words))
    except SystemExit:
        return None


def _folder(word: str) -> Path:
    path = Path(os.path.abspath(word))
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{word} is no folder")
    return path


def _refuse_sweep_options(given: argparse.Namespace, run: Path) -> None:
    for name in ("baseline", "objective", "to"):
        if getattr(given, name):
            raise ConfigError(f"--{name} is for sweeps; {run} is a run")


def _new_folder(folders: Sequence[Path]) -> Path:
    name = "-".join(folder.name for folder in folders)
    return Path.cwd() / REPORTS / (name if len(name) <= 100 else f"{name[:100]}-and-more")


def _say(written: Written) -> None:
    for path in (written.page, written.table, *written.pictures):
        sys.stdout.write(f"{path}\n")
    if written.remark:
        sys.stderr.write(f"no pictures of the figures: {written.remark}\n")
