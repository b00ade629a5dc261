"""Weights & Biases: online with a key, offline without one, one run per job whatever the environment says.

The package is imported when the run starts, never to show a configuration. Files go to `<run dir>/wandb`; an offline
run is uploaded later with `wandb sync <run dir>/wandb/offline-run-*`.
"""

from __future__ import annotations

import logging
import netrc
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlparse

from composer_rl.errors import MissingExtraError
from composer_rl.trackers.base import RunInfo, Tracker
from composer_rl.trackers.summary import error_text, final_metrics

if TYPE_CHECKING:
    from wandb import Run

_LOG = logging.getLogger(__name__)

_RUN_IDENTITY = (
    "WANDB_RUN_ID",
    "WANDB_NAME",
    "WANDB_RUN_NAME",
    "WANDB_RUN_GROUP",
    "WANDB_RUN_DIR",
    "WANDB_RUN_STORAGE_ID",
    "WANDB_RESUME",
    "WANDB_SWEEP_ID",
    "WANDB_SWEEP_PARAM_PATH",
    "WANDB_JOB_TYPE",
    "WANDB_TAGS",
    "WANDB_NOTES",
    "WANDB_DIR",
    "WANDB_CONFIG_PATHS",
    "WANDB_PROGRAM",
    "WANDB_ARGS",
)
"""Variables that name one run. Left by an earlier job of the same process they would send this job's figures there
(wandb issues 1314, 5119, 4740, 3682)."""

_Mode = Literal["online", "offline", "disabled"]
_MODES: tuple[_Mode, ...] = ("online", "offline", "disabled")
_EXIT_CODES = {"succeeded": 0, "stopped": 0, "interrupted": 130}
_DEFAULT_HOST = "api.wandb.ai"


@dataclass(kw_only=True)
class WandbTracker(Tracker):
    """Logs to one W&B run whose id is the run's own id; the x axis is the optimizer step."""

    project: str = "composer-rl"
    """W&B project, non-empty."""
    entity: str | None = None
    """User or team; None is the key's default."""
    mode: Literal["auto", "online", "offline", "disabled"] = "auto"
    """`auto`: WANDB_MODE if set, else online if there is a key (WANDB_API_KEY, WANDB_IDENTITY_TOKEN_FILE, or netrc
    as `wandb login` leaves it), else offline. `online` without a key or a network is an error at the start, which
    leaves this tracker out; `auto` goes offline then, with a warning."""
    tags: list[str] = field(default_factory=list)
    """Added to the run's own tags."""
    job_type: str | None = None
    """W&B's second grouping level, for instance the stage."""
    keep_environment: bool = False
    """Leave WANDB_RUN_ID, WANDB_SWEEP_ID and their like in force: needed only under a `wandb agent`."""
    system_metrics: bool = False
    """Sample CPU, GPU and memory in W&B's background process."""
    log_report: bool = False
    """Upload report.html as an artifact of the run."""
    init_timeout_s: float = 60.0
    """Longest wait for the server at the start, in seconds, above 0."""
    finish_timeout_s: float = 120.0
    """Longest wait for uploads at the end, in seconds; 0 waits without limit."""

    def __post_init__(self) -> None:
        self._run: Run | None = None
        self._info: RunInfo | None = None
        self._environment: dict[str, str] = {}
        if not self.project:
            raise ValueError(f"project must be a non-empty name, got {self.project!r}")
        if self.mode not in ("auto", *_MODES):
            raise ValueError(f"mode must be auto, online, offline or disabled, got {self.mode!r}")
        if not self.init_timeout_s > 0:
            raise ValueError(f"init_timeout_s must be above 0, got {self.init_timeout_s}")
        if not self.finish_timeout_s >= 0:
            raise ValueError(f"finish_timeout_s must be at least 0, got {self.finish_timeout_s}")

    def start(self, info: RunInfo) -> None:
        """Open the W&B run. Raises MissingExtraError without wandb, and what wandb raises if it cannot start."""
        mode = self._resolved_mode()
        if mode == "disabled":
            return
        if not self.keep_environment:
            # Removed before the import: wandb reads its environment once per process, when it is set up.
            for name in _RUN_IDENTITY:
                if (value := os.environ.pop(name, None)) is not None:
                    self._environment[name] = value
        try:
            self._info = info
            self._run = self._open(info, mode)
        finally:
            if self._run is None:
                self._restore_environment()

    def log(self, metrics: dict[str, float], *, step: int) -> None:
        """Add one row; `step` is a column of its own, so that a resumed run may go back to its checkpoint's step."""
        if self._run is not None:
            self._run.log({**metrics, "step": step})

    def finish(self, status: str, summary: dict[str, Any]) -> None:
        """Write the final figures and close the run with an exit code; the environment is as before afterwards."""
        run, self._run = self._run, None
        if run is None:
            return
        try:
            self._write_summary(run, status, summary)
        finally:
            try:
                run.finish(exit_code=_EXIT_CODES.get(status, 1))
            finally:
                self._restore_environment()

    def _resolved_mode(self) -> _Mode:
        asked = os.environ.get("WANDB_MODE", "") if self.mode == "auto" else self.mode
        for mode in _MODES:
            if mode == asked:
                return mode
        return "online" if _has_key() else "offline"

    def _open(self, info: RunInfo, mode: _Mode) -> Run:
        try:
            import wandb
        except ModuleNotFoundError as error:
            if error.name != "wandb":
                raise
            raise MissingExtraError("tracker wandb", package="wandb", extra="wandb") from error

        def init(mode: _Mode) -> Run:
            return wandb.init(
                project=self.project,
                entity=self.entity,
                id=info.run_id,
                name=info.run_name,
                group=info.group,
                job_type=self.job_type,
                tags=list(dict.fromkeys([*info.tags, *self.tags])),
                config=info.config,
                dir=str(info.run_dir),
                mode=mode,
                resume="allow" if info.resume_step is not None else None,
                reinit="create_new",
                settings=wandb.Settings(
                    silent=True,
                    quiet=True,
                    console="off",
                    save_code=False,
                    init_timeout=self.init_timeout_s,
                    finish_timeout=self.finish_timeout_s,
                    x_disable_stats=not self.system_metrics,
                ),
            )

        try:
            run = init(mode)
        except wandb.Error as error:
            if mode != "online" or self.mode != "auto":
                raise
            _LOG.warning("wandb cannot go online (%s); this run is recorded offline, `wandb sync` uploads it", error)
            run = init("offline")
        run.define_metric("step", hidden=True)
        run.define_metric("*", step_metric="step")
        return run

    def _write_summary(self, run: Run, status: str, summary: dict[str, Any]) -> None:
        figures: dict[str, Any] = {"status": status, **final_metrics(summary)}
        if text := error_text(summary):
            figures["error"] = text
        run.summary.update(figures)
        report = self._info.run_dir / "report.html" if self._info is not None else None
        if self.log_report and report is not None and report.exists():
            import wandb

            artifact = wandb.Artifact(f"report-{run.id}", type="report")
            artifact.add_file(str(report))
            run.log_artifact(artifact)

    def _restore_environment(self) -> None:
        saved, self._environment = self._environment, {}
        os.environ.update(saved)


def _has_key() -> bool:
    """Whether wandb would find credentials without asking for them."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = urlparse(os.environ.get("WANDB_BASE_URL", "")).hostname or _DEFAULT_HOST
    try:
        return netrc.netrc(os.environ.get("NETRC") or None).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
