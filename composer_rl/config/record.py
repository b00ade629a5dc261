"""result.json: what a run was and how it ended, complete after every write.

`schema_version` is "1.0"; the major number changes when a reader of an older file would be misled.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import tempfile
import traceback
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import composer_rl
from composer_rl.config.paths import checkout_dir
from composer_rl.config.redact import redact, redact_override
from composer_rl.config.rundir import RESULT_NAME

SCHEMA_VERSION = "1.0"

Status = Literal["running", "succeeded", "failed", "interrupted", "stopped"]

_PACKAGES = (
    "torch",
    "transformers",
    "trl",
    "accelerate",
    "datasets",
    "peft",
    "safetensors",
    "tokenizers",
    "numpy",
    "hydra-core",
    "omegaconf",
    "wandb",
)


@dataclass(kw_only=True)
class ResultRecord:
    """The content of result.json."""

    run_id: str
    run_name: str | None
    status: Status = "running"
    exit_code: int | None = None
    error: dict[str, str] | None = None
    """`type`, `message` and `traceback` of what ended the run; None while it runs and when it succeeded."""
    metrics: dict[str, float | None] = field(default_factory=dict)
    """Final figures, flat names with slashes; a figure that is not finite is None."""
    engagement: list[dict[str, Any]] = field(default_factory=list)
    """Rows of the engagement table: knob, metric, value, engaged, note."""
    warnings: list[str] = field(default_factory=list)
    """What makes the figures of a run that succeeded less than they seem, a sentence each."""
    seeds: dict[str, int] = field(default_factory=dict)
    stage: str | None = None
    """Option of the stage group."""
    sweep: str | None = None
    """Name of the sweep this job belongs to."""
    job_num: int | None = None
    started_at: str = ""
    """ISO 8601, UTC."""
    ended_at: str | None = None
    duration_s: float | None = None
    """Seconds of this session of the run; a resumed run starts anew."""
    resumed: int = 0
    """How often the run was resumed."""
    git_revision: str | None = None
    """Commit of the checkout that composer_rl ran from; None for an installed wheel."""
    git_dirty: bool | None = None
    """Whether that checkout had uncommitted changes."""
    package_versions: dict[str, str] = field(default_factory=dict)
    platform: dict[str, Any] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)
    """Overrides of this job, sweep choices included."""
    choices: dict[str, str | None] = field(default_factory=dict)
    """Option by config group."""
    cwd: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    """Resolved configuration."""
    schema_version: str = SCHEMA_VERSION

    def finish(self, status: Status, exit_code: int, error: BaseException | None = None) -> None:
        """Set how the run ended and when."""
        self.status, self.exit_code = status, exit_code
        now = datetime.now(UTC)
        self.ended_at = now.isoformat()
        self.duration_s = (now - datetime.fromisoformat(self.started_at)).total_seconds()
        if error is not None:
            self.error = {
                "type": type(error).__name__,
                "message": str(error),
                "traceback": "".join(traceback.format_exception(error)),
            }

    def write(self, run_dir: Path) -> Path:
        """Replace result.json in one step; secrets are taken out of everything that is written."""
        content = asdict(self)
        content["overrides"] = [redact_override(override) for override in self.overrides]
        content["command"] = [redact_override(word) for word in self.command]
        content["config"] = redact(self.config)
        content["error"] = redact(self.error)
        path = run_dir / RESULT_NAME
        write_atomically(path, json.dumps(plain(content), indent=2, allow_nan=False) + "\n")
        return path


def plain(value: Any) -> Any:
    """JSON data: NumPy and torch scalars become numbers, paths text, numbers that are not finite None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return plain(value.item())
    return str(value)


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader, or a machine that loses power, sees the old content or the new one."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def now_text() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat()


def package_versions() -> dict[str, str]:
    """Versions of Python, composer_rl and what it runs on, without importing any of them."""
    versions = {"python": platform.python_version(), "composer_rl": composer_rl.__version__}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def platform_facts() -> dict[str, Any]:
    """System, processor kind and core count; nothing that names the machine."""
    return {"system": platform.system(), "machine": platform.machine(), "cpu_count": os.cpu_count()}


def git_state() -> tuple[str | None, bool | None]:
    """Commit and dirtiness of composer_rl's own checkout; (None, None) without one or without git."""
    root = checkout_dir()
    if root is None:
        return None, None
    revision = _git(root, "rev-parse", "HEAD")
    if revision is None:
        return None, None
    status = _git(root, "status", "--porcelain")
    return revision.strip(), None if status is None else bool(status.strip())


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
