"""Every exception that composer_rl raises on purpose; each message names the key, what was wrong and what to do."""

from __future__ import annotations


class ComposerError(Exception):
    """Base of all errors raised on purpose. `exit_code` is what the command line returns for it."""

    exit_code: int = 1


class ConfigError(ComposerError, ValueError):
    """The configuration is wrong: reported as one line, exit code 2, before anything heavy is imported."""

    exit_code = 2


class RunDirectoryError(ConfigError):
    """The run directory is occupied, missing for a resume, or cannot be written."""


class MissingExtraError(ComposerError, ImportError):
    """An optional dependency is absent; the message names the extra that brings it."""

    exit_code = 2

    def __init__(self, feature: str, *, package: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs the package {package!r}, which is not installed; "
            f"install it with: pip install 'composer-rl[{extra}]'"
        )
        self.package = package
        self.extra = extra


class DiskFullError(ComposerError):
    """The disk of the run folder is full; the run ended there; it can be resumed from a complete checkpoint."""


class SandboxError(ComposerError):
    """The sandbox itself failed (not the code it ran): no isolation available, or its template process died."""


class RolloutError(ComposerError):
    """A rollout could not be produced although the environment and the model were set up."""


class EngagementError(ComposerError):
    """A loss channel that was switched on never found the inputs it acts on: the run trained something else."""
