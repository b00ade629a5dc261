"""The default run over several seeds: held-out rates before and after, and the time it takes.

    python benchmarks/default_run.py --seeds 0 1 2 3 4 --out outputs/default_run

Each seed is `python train.py seed=<seed>` in a process of its own; a seed whose folder holds a finished run is not run
again. Rates are of 200 held-out tasks, first attempt, temperature 1, no hints; intervals are Wilson's at 95%. Recovery
is the share of the policy's own first-attempt errors that its second turn repairs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

from composer_rl.report.statistics import wilson_interval

ROOT = Path(__file__).resolve().parent.parent


def finished(folder: Path) -> dict[str, Any] | None:
    """The record of a finished run, or None."""
    path = folder / "result.json"
    if not path.is_file():
        return None
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record if record["status"] == "succeeded" else None


def run(seed: int, folder: Path, overrides: list[str]) -> dict[str, Any]:
    """Run a seed unless its folder already holds it."""
    record = finished(folder)
    if record is None:
        command = [sys.executable, str(ROOT / "train.py"), f"seed={seed}", f"hydra.run.dir={folder}", *overrides]
        subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)
        record = finished(folder)
        assert record is not None
    return record


def row(seed: int, record: dict[str, Any]) -> str:
    """One line of the table."""
    metrics = record["metrics"]
    tasks = metrics["heldout/num_tasks"]
    cells = []
    for when in ("before", "after"):
        rate = metrics[f"heldout/solve_rate_{when}"]
        low, high = wilson_interval(rate, tasks)
        cells.append(f"{rate:.3f} ({low:.2f} to {high:.2f})")
    recovery = [f"{metrics.get(f'heldout/recovery_rate_{when}', float('nan')):.3f}" for when in ("before", "after")]
    return f"| {seed} | {cells[0]} | {cells[1]} | {' → '.join(recovery)} | {record['duration_s']:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=Path("outputs/default_run"))
    parser.add_argument("overrides", nargs="*", help="settings of train.py")
    arguments = parser.parse_args()
    records = {seed: run(seed, (arguments.out / str(seed)).resolve(), arguments.overrides) for seed in arguments.seeds}
    print("| seed | first attempt before | first attempt after | recovery | seconds in all |\n|---|---|---|---|---|")
    for seed, record in records.items():
        print(row(seed, record))
    print(f"\n{date.today().isoformat()}, {os.cpu_count()} cores, {platform.processor() or platform.machine()}")


if __name__ == "__main__":
    main()
