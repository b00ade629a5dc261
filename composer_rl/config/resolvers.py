"""Interpolations of composer_rl's own, used for the names of run and sweep folders."""

from __future__ import annotations

import hashlib
import secrets

from omegaconf import OmegaConf

_state = {"run_id": secrets.token_hex(4)}


def current_run_id() -> str:
    """Id of the run that this process starts next: 8 hexadecimal digits, unique across machines and seconds."""
    return _state["run_id"]


def renew_run_id() -> str:
    """Draw a new id (each job of a sweep gets its own) and return it."""
    _state["run_id"] = secrets.token_hex(4)
    return _state["run_id"]


def override_hash(overrides: str) -> str:
    """8 hexadecimal digits that tell one job's overrides from another's; the same in every process."""
    return hashlib.sha256(str(overrides).encode()).hexdigest()[:8]


def sweep_name(run_name: str | None, sweep: str | None, started: str, run_id: str) -> str:
    """Folder name of a sweep: the run name or the sweep's file, so that the same command goes on with it; of a sweep
    without either, the time and an id."""
    if run_name:
        return str(run_name)
    if sweep:
        return str(sweep).replace("/", "-")
    return f"sweep-{started}-{run_id}"


def register() -> None:
    """Register the resolvers with OmegaConf. Idempotent."""
    OmegaConf.register_new_resolver("run_id", current_run_id, use_cache=True, replace=True)
    OmegaConf.register_new_resolver("override_hash", override_hash, replace=True)
    OmegaConf.register_new_resolver("sweep_name", sweep_name, replace=True)
