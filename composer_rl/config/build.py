"""The only road from configuration to objects.

`prepare` checks every component of a run, names and types of all fields, and then builds them. Nothing heavy is
imported on the way: component modules import torch and its friends inside their methods. Hydra's `instantiate` is
not used; the effect is that of its `_convert_="all"` (components receive plain dicts and lists), with two
differences: only classes of composer_rl and of `trusted_packages` are reachable, and every value is checked first.
"""

from __future__ import annotations

import importlib
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from composer_rl.config.check import plan, plan_component
from composer_rl.config.hints import kind_of
from composer_rl.config.locate import check_trusted
from composer_rl.config.plan import Call
from composer_rl.config.settings import SETTING_NAMES, RunSettings, settings_part
from composer_rl.config.suggest import did_you_mean
from composer_rl.config.translate import interpolation_message
from composer_rl.errors import ConfigError


@dataclass(kw_only=True)
class Prepared:
    """A run that is fully checked and built, before anything is written or any weight is read."""

    settings: RunSettings
    components: dict[str, Any]
    """Built component by top-level key; a group that is null has none."""
    config: dict[str, Any] = field(default_factory=dict)
    """Resolved configuration, plain dicts and lists."""


def resolve(config: DictConfig | Mapping[str, Any]) -> dict[str, Any]:
    """Plain dicts and lists with every interpolation replaced by its value.

    Raises ConfigError naming the key whose interpolation points at nothing. Mandatory values that are still
    missing stay "???": `prepare` names them.
    """
    node = config if isinstance(config, DictConfig) else OmegaConf.create(dict(config))
    try:
        resolved = OmegaConf.to_container(node, resolve=True, throw_on_missing=False)
    except OmegaConfBaseException as error:
        raise ConfigError(interpolation_message(error, node)) from error
    return {str(key): value for key, value in resolved.items()}  # type: ignore[union-attr]


def build(config: Mapping[str, Any], *, path: str, trusted: Sequence[str] = (), expected: type | None = None) -> Any:
    """Check and build one component: a mapping with a `_target_`.

    `path` prefixes errors ("po"), `trusted` lists packages besides composer_rl, and `expected` is the base class
    or runtime protocol the component must satisfy. Raises ConfigError, or MissingExtraError from the component.
    """
    return plan_component(dict(config), path=path, trusted=check_trusted(trusted), expected=expected).build()


def prepare(
    config: DictConfig | Mapping[str, Any],
    *,
    bases: Mapping[str, str] | None = None,
    groups: Sequence[str] = (),
) -> Prepared:
    """Check all of a run's configuration, then build all of its components.

    `bases` maps a config group to the dotted name of the class its component must be an instance of; `groups` are
    the known config groups, for suggestions. Raises ConfigError for the first thing that is wrong.
    """
    resolved = resolve(config)
    settings = _settings(resolved)
    trusted = check_trusted(settings.trusted_packages)
    plans: dict[str, Call] = {}
    for key, value in resolved.items():
        if key in SETTING_NAMES or value is None:
            continue
        plans[key] = _plan_group(key, value, trusted, bases or {}, groups)
    components = {key: call.build() for key, call in plans.items()}
    return Prepared(settings=settings, components=components, config=resolved)


def _settings(resolved: dict[str, Any]) -> RunSettings:
    values = settings_part(resolved)
    types = typing.get_type_hints(RunSettings)
    checked: dict[str, Any] = {}
    for name, value in values.items():
        checked[name] = plan(value, types[name], path=name).build()
    try:
        return RunSettings(**checked)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _plan_group(key: str, value: Any, trusted: Sequence[str], bases: Mapping[str, str], groups: Sequence[str]) -> Call:
    known = {*SETTING_NAMES, *groups, *bases}
    if key not in known and not (isinstance(value, dict) and "_target_" in value):
        raise ConfigError(f"{key} is neither a setting nor a config group{did_you_mean(key, known, what='there are')}")
    if not isinstance(value, dict):
        raise ConfigError(f"{key} must be an option of the config group {key}, got {kind_of(value)}")
    if "_target_" not in value:
        first = next(iter(value), "...")
        raise ConfigError(
            f"{key} has no _target_: choose an option of the group first ({key}=<option>), then set {key}.{first}"
        )
    expected = _base_class(bases[key]) if key in bases else None
    return plan_component(value, path=key, trusted=trusted, expected=expected)


def _base_class(dotted: str) -> type:
    module, _, name = dotted.rpartition(".")
    base: type = getattr(importlib.import_module(module), name)
    return base
