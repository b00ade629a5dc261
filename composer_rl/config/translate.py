"""Hydra's and OmegaConf's errors in one line each, with a suggestion."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from omegaconf import Container, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from composer_rl.config.settings import SETTING_NAMES
from composer_rl.config.suggest import did_you_mean, nearest
from composer_rl.errors import ConfigError

if TYPE_CHECKING:
    from composer_rl.config.paths import Catalog

_NOT_IN_STRUCT = re.compile(r"Could not override '(?P<key>[^']+)'\.\nTo append to your config use \+(?P<line>.+)")
_QUOTING = "quote values with special characters, for example key=\"'a, b'\""


def unknown_key(error: BaseException) -> str | None:
    """The override key of Hydra's "not in struct" error, None for any other error and for Hydra's own settings."""
    match = _NOT_IN_STRUCT.match(str(error))
    if match is None or error.__cause__ is None or match["key"].startswith("hydra."):
        return None
    return match["key"]


def translate(error: Exception, known: Catalog) -> ConfigError | None:
    """A ConfigError for an error of Hydra, OmegaConf or the YAML parser; None for anything else."""
    import yaml
    from hydra.errors import HydraException, MissingConfigException, OverrideParseException

    if isinstance(error, ConfigError):
        return error
    if isinstance(error, MissingConfigException):
        return ConfigError(_missing_config(error, known))
    if isinstance(error, OverrideParseException):
        return ConfigError(_unparsable(error, known))
    if isinstance(error, yaml.MarkedYAMLError):
        return ConfigError(_bad_yaml(error))
    if isinstance(error, HydraException):
        return ConfigError(_composition(error, known))
    if isinstance(error, OmegaConfBaseException):
        return ConfigError(interpolation_message(error, None))
    if isinstance(error, ValueError) and "Config group override must be a string" in str(error):
        return ConfigError("a config group takes the name of one of its options; ~group leaves the group out")
    if isinstance(error, ValueError) and ("Only one of --run" in str(error) or "--resolve flag" in str(error)):
        return ConfigError(str(error))
    return None


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else ""


def _missing_config(error: Any, known: Catalog) -> str:
    file = error.missing_cfg_file
    if not file or "/" not in file:
        first = _first_line(str(error))
        return f"{first} Folders searched: {', '.join(str(folder) for folder in known.folders)}"
    told = re.search(r"Available options in '(?P<group>[^']+)'", str(error))
    group = told["group"] if told is not None else file.rpartition("/")[0]
    name = file[len(group) + 1 :]
    options = known.names(group) or list(error.options or ())
    hint = did_you_mean(name, options, what="options")
    if group == "model" and "/" in name and nearest(name, options) is None:
        hint = f"; for a Hugging Face model: model=hf model.name={name}"
    return f"{group} has no option {name!r}{hint}"


def _unparsable(error: Any, known: Catalog) -> str:
    text = str(error.override)
    if "=" in text:
        key = text.partition("=")[0]
        if re.search(r"\s", key):
            return f"cannot read {text!r}: no spaces are allowed around or in the key"
        return f"cannot read the value of {key} in {text!r}; {_QUOTING}"
    if text in known.options:
        return f"{text} needs a value, {text}=<option>; options: {', '.join(known.names(text))}"
    if text in SETTING_NAMES:
        return f"{text} needs a value: {text}=<value>"
    groups = known.groups_with(text)
    if groups:
        return f"settings are key=value, got {text!r}; did you mean {groups[0]}={text}?"
    hint = did_you_mean(text, [*known.top_groups, *SETTING_NAMES], what="settings and groups")
    return f"settings are key=value, got {text!r}{hint}"


def _bad_yaml(error: Any) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"{mark.name}, line {mark.line + 1}" if mark is not None else "a configuration file"
    return f"{where} is not valid YAML: {error.problem or error.context}"


def _composition(error: Exception, known: Catalog) -> str:
    text = str(error)
    ambiguous = re.match(r"Ambiguous value for argument '(?P<line>[^']*)'", text)
    if ambiguous is not None:
        key, _, value = ambiguous["line"].partition("=")
        return (
            f"{key} got several values, {value}: add -m to run each of them, "
            f"or use {key}=[{value}] for a list or {key}=\"'{value}'\" for one text"
        )
    sweep = re.match(r"Sweep parameters '(?P<line>[^']*)' requires --multirun", text)
    if sweep is not None:
        return f"{sweep['line']} is a sweep: add -m to run each of its values"
    if isinstance(error.__cause__, OmegaConfBaseException) and not _NOT_IN_STRUCT.match(text):
        return f"{_first_line(text).rstrip('.')}: {_first_line(str(error.__cause__))}".lstrip(": ")
    return _override_message(error, text, known)


def _override_message(error: Exception, text: str, known: Catalog) -> str:
    first = _first_line(text)
    struct = _NOT_IN_STRUCT.match(text)
    if struct is not None:
        key = struct["key"]
        return f"{key} is no setting{_siblings(error.__cause__, key)}"
    no_match = re.search(r"Could not override '(?P<key>[^']+)'", first)
    if no_match is not None:
        key, append = no_match["key"], re.search(r"To append to your default list use (\+\S+)", text)
        if append is not None:
            return f"{key} is not in the defaults list yet; add it with a plus: {append[1]}"
        where = re.match(r"In '(?P<file>[^']+)'", first)
        prefix = f"{where['file']}: " if where is not None else ""
        return f"{prefix}{key} is no config group{did_you_mean(key, known.top_groups, what='there are')}"
    already = re.match(r"Could not append to config\. An item is already at '(?P<key>[^']+)'", first)
    if already is not None:
        return f"{already['key']} is already there: leave the plus out"
    multiple = re.match(r"Multiple values for (?P<key>[^.]+)\.", first)
    if multiple is not None:
        return f"{multiple['key']} is already in the defaults list: leave the plus out"
    deleted = re.match(r"Could not delete (from config\. )?'(?P<key>[^']+)'", first)
    if deleted is not None:
        return f"{deleted['key']} cannot be left out with ~: it is not there"
    return " ".join(text.split())


def _siblings(cause: BaseException | None, key: str) -> str:
    kind = getattr(cause, "object_type", None)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        names = [entry.name for entry in dataclasses.fields(kind)]
        return did_you_mean(key.rpartition(".")[2], names, what="there are")
    return ""


def interpolation_message(error: OmegaConfBaseException, config: Container | None) -> str:
    """One line for an interpolation that cannot be resolved; `config` is searched for a similar key."""
    key = str(getattr(error, "full_key", None) or getattr(error, "key", None) or "the configuration")
    text = _first_line(str(error))
    missing = re.match(r"Interpolation key '(?P<name>[^']+)' not found", text)
    if missing is not None:
        known = _all_keys(config) if config is not None else []
        hint = did_you_mean(missing["name"], known, what="") if known else ""
        hint = hint if "did you mean" in hint else ""
        return f"{key}: the interpolation ${{{missing['name']}}} points at nothing{hint}"
    resolver = re.match(r"Unsupported interpolation type (?P<name>\S+)", text)
    if resolver is not None:
        hint = did_you_mean(resolver["name"], ("oc.env", "oc.select", "now", "hydra"), what="known")
        return f"{key}: there is no interpolation type {resolver['name']!r}{hint}"
    raised = re.match(r"\w+ raised while resolving interpolation: \"?(?P<why>.*?)\"?$", text)
    return f"{key}: {raised['why'] if raised is not None else text}"


def _all_keys(config: Container) -> list[str]:
    keys: list[str] = []

    def visit(node: Any, prefix: str) -> None:
        if isinstance(node, dict):
            for name, child in node.items():
                keys.append(f"{prefix}{name}")
                visit(child, f"{prefix}{name}.")

    visit(OmegaConf.to_container(config, resolve=False), "")
    return keys
