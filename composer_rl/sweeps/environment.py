"""What a job's process is given: cores, devices, its place in the sweep, and nothing that names another run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import composer_rl
from composer_rl.runtime import available_cores

SWEEP_VARIABLE, NUMBER_VARIABLE, PARENT_VARIABLE = (f"COMPOSER_RL_SWEEP{suffix}" for suffix in ("", "_JOB", "_PROCESS"))
"""Sweep name, job number and process id of the sweep, in a job's environment."""
ONE_RUN_ONLY = (
    "WANDB_RUN_ID",
    "WANDB_NAME",
    "WANDB_RESUME",
    "WANDB_DIR",
    "WANDB_SWEEP_ID",
    "WANDB_RUN_GROUP",
    "WANDB_JOB_TYPE",
    "WANDB_NOTES",
    "WANDB_TAGS",
    "WANDB_SERVICE",
)
"""Variables that would send every job's figures to one run (wandb/wandb #5119, #4740)."""


@dataclass(frozen=True, kw_only=True)
class Slot:
    """Room for one job at a time."""

    cores: frozenset[int]
    """Cores that its processes may use; empty where the platform cannot say."""
    device: str | None = None
    """CUDA device, None to leave the choice to the job."""


def slots(num_jobs: int, devices: Sequence[str] | None) -> list[Slot]:
    """One slot a job at once; cores are dealt out in turn, since jobs that share cores wait for each other."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    cards = list(visible_devices() if devices is None else devices)
    made = []
    for number in range(num_jobs):
        own = cores[number::num_jobs] or cores[number % len(cores) : number % len(cores) + 1] if cores else []
        device = cards[number % len(cards)] if cards else None
        made.append(Slot(cores=frozenset(own), device=device))
    return made


def visible_devices() -> list[str]:
    """CUDA devices of this machine, without importing torch; [] for one device or none: nothing to share out."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        found = [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name.strip()]
    else:
        try:
            listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return []
        found = [str(i) for i, line in enumerate(listed.stdout.splitlines()) if line.startswith("GPU ")]
    return found if len(found) > 1 else []


def job_environment(slot: Slot, *, sweep: str, number: int, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a job."""
    # A job finds the modules that this process finds: those of the user beside train.py, for example.
    found = dict.fromkeys([str(Path(composer_rl.__file__).parents[1]), *(entry or os.getcwd() for entry in sys.path)])
    environment = {name: value for name, value in base.items() if name not in ONE_RUN_ONLY}
    environment["PYTHONPATH"] = os.pathsep.join(found)
    environment |= {
        SWEEP_VARIABLE: sweep,
        NUMBER_VARIABLE: str(number),
        PARENT_VARIABLE: str(os.getpid()),
        "OMP_NUM_THREADS": str(len(slot.cores) or available_cores()),
    }
    if slot.device is not None:
        environment["CUDA_VISIBLE_DEVICES"] = slot.device
    return environment


def place_in_sweep() -> tuple[str | None, int | None]:
    """In a job: sweep name and job number, (None, None) in any other process.

    The variables are taken out, so that a run which the job starts is not recorded as the same job of the sweep.
    """
    name, number = os.environ.pop(SWEEP_VARIABLE, None), os.environ.pop(NUMBER_VARIABLE, None)
    return (name, int(number)) if name is not None and number is not None and number.isdigit() else (None, None)


def end_with_parent() -> None:
    """In a job: have the kernel send SIGTERM when the sweep's process is gone, however it ended (Linux).

    The variable is taken out: a program that the job starts has the job as its parent, not the sweep.
    """
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is None or not parent.isdigit():
        return
    try:
        import ctypes
        import signal

        ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # 1: PR_SET_PDEATHSIG
    except (OSError, AttributeError):
        return
    if os.getppid() != int(parent):  # It ended before the line above.
        os.kill(os.getpid(), signal.SIGTERM)
