"""What a launcher hands back about its jobs, whichever launcher it is and in whatever process they ran."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer_rl.run import Outcome
from composer_rl.sweeps.call import current_call
from composer_rl.sweeps.runner import read_record

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn


def has_failed(job: JobReturn) -> bool:
    """Whether a job ended in any other way than well."""
    from hydra.core.utils import JobStatus

    return bool(job.status != JobStatus.COMPLETED)


def folder_of_return(job: JobReturn) -> Path | None:
    """The job's run folder; None where the launcher does not say."""
    if job.hydra_cfg is not None:  # Hydra's own launchers: working_dir is where the command was started.
        return Path(str(job.hydra_cfg.hydra.runtime.output_dir))
    return Path(job.working_dir) if job.working_dir else None


def count_outcomes(returns: Sequence[JobReturn]) -> None:
    """Add the outcomes of jobs that ran in another process to those of this call, so that a failure is not lost."""
    outcomes = current_call().outcomes
    counted = {outcome.run_dir for outcome in outcomes}
    for job in returns:
        folder = folder_of_return(job)
        if folder is None or folder in counted:
            continue
        record = read_record(folder)
        figures = record.get("metrics") or {}
        status: Any = "failed" if has_failed(job) else record.get("status", "succeeded")
        outcomes.append(
            Outcome(
                status=status,
                exit_code=int(record.get("exit_code") or 1) if has_failed(job) else 0,
                run_dir=folder,
                metrics={name: value for name, value in figures.items() if value is not None},
            )
        )
