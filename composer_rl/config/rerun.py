"""Repeat a run from its result.json, or go on with the one in a folder.

The stored, resolved configuration becomes Hydra's primary configuration, so that nothing of today's conf/ gets in.
Only a group that the command line chooses anew is composed from conf/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from composer_rl.config.paths import Catalog, conf_dir
from composer_rl.config.record import SCHEMA_VERSION, git_state, package_versions
from composer_rl.config.redact import REDACTED
from composer_rl.config.rundir import RESULT_NAME
from composer_rl.errors import ConfigError

CONFIG_NAME = "composer_rl_stored_run"

_OPENING = re.compile(r"(\\*)\$\{")
"""The start of an interpolation, with the backslashes before it."""


def load_record(path: Path) -> dict[str, Any]:
    """A result.json (or the one in a run folder) that this version can repeat.

    Raises ConfigError when it is missing, unreadable, no result.json, or of another major version.
    """
    file = path / RESULT_NAME if path.is_dir() else path
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get("config"), dict):
        raise ConfigError(f"{file} is no result.json of a run: it has no config")
    record.setdefault("choices", {})
    _check_major("schema_version", record.get("schema_version"), SCHEMA_VERSION, file)
    stored = record.get("package_versions", {})
    _check_major("composer_rl version", stored.get("composer_rl"), package_versions()["composer_rl"], file)
    return record


def _check_major(what: str, stored: Any, current: str, file: Path) -> None:
    if not isinstance(stored, str) or stored.partition(".")[0] != current.partition(".")[0]:
        raise ConfigError(f"{file} has {what} {stored}, this is {current}: a run cannot be repeated across them")


def differences(record: dict[str, Any]) -> list[str]:
    """In words, what is not as it was when the record was written: code revision and package versions."""
    found: list[str] = []
    revision, dirty = git_state()
    if record.get("git_revision") != revision:
        found.append(f"git revision was {record.get('git_revision')}, is {revision}")
    if record.get("git_dirty") or dirty:
        found.append("uncommitted changes " + ("then" if record.get("git_dirty") else "now"))
    stored, current = record.get("package_versions", {}), package_versions()
    for name in sorted({*stored, *current}):
        if stored.get(name) != current.get(name):
            found.append(f"{name} was {stored.get(name, 'absent')}, is {current.get(name, 'absent')}")
    return found


def redacted_keys(config: Any, prefix: str = "") -> list[str]:
    """Keys whose value was taken out when the record was written."""
    if isinstance(config, dict):
        items = [(f"{prefix}.{key}" if prefix else str(key), item) for key, item in config.items()]
        return [found for name, item in items for found in redacted_keys(item, name)]
    if isinstance(config, list):
        return [found for index, item in enumerate(config) for found in redacted_keys(item, f"{prefix}[{index}]")]
    return [prefix] if isinstance(config, str) and REDACTED in config else []


def chosen_groups(overrides: Sequence[str], known: Catalog) -> list[str]:
    """Top-level config groups that the overrides choose an option of (`po=dapo`) or leave out (`~po`)."""
    keys = [override.partition("=")[0].removeprefix("~") for override in overrides]
    return [key for key in keys if key in known.options and "/" not in key]


def register(record: dict[str, Any], overrides: Sequence[str], known: Catalog, *, source: str | None) -> None:
    """Make the record's configuration the primary configuration CONFIG_NAME.

    `overrides` are those of today's command line: a group chosen there gives up its stored content. `source` is
    written into the key `rerun`.
    """
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    shipped = OmegaConf.to_container(OmegaConf.load(conf_dir() / "config.yaml"), resolve=False)
    assert isinstance(shipped, dict)
    entries = [entry for entry in shipped["defaults"] if isinstance(entry, dict)]
    groups = {key: None for entry in entries for key in entry if not str(key).startswith("override ")}
    config = _escaped({**record["config"], "rerun": source, "resume": False})
    for group in chosen_groups(overrides, known):
        config.pop(group, None)
        groups.setdefault(group, None)
    defaults: list[Any] = ["_self_", *({group: None} for group in groups)]
    defaults += [entry for entry in entries if any("hydra/" in str(key) for key in entry)]
    config["defaults"] = defaults
    config["hydra"] = shipped["hydra"]
    ConfigStore.instance().store(name=CONFIG_NAME, node=config)


def _escaped(value: Any) -> Any:
    """Stored texts are final: a literal `${` in one must not be taken for an interpolation."""
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return _OPENING.sub(lambda match: 2 * match[1] + "\\${", value) if isinstance(value, str) else value
