"""From a `_target_` to the class it names: only inside composer_rl and the packages the user trusts."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
import sys
from collections.abc import Sequence
from dataclasses import is_dataclass
from types import ModuleType
from typing import Any

from composer_rl.config.suggest import did_you_mean
from composer_rl.errors import ConfigError, MissingExtraError

OWN_PACKAGE = "composer_rl"

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def check_trusted(packages: Sequence[str]) -> tuple[str, ...]:
    """Validate `trusted_packages` and put the current folder on the import path if there are any.

    Raises ConfigError for a name that is no dotted name, or that belongs to Python's standard library: a
    configuration file must not be able to reach `os.system`.
    """
    for name in packages:
        if not _DOTTED.fullmatch(name):
            raise ConfigError(f"trusted_packages: {name!r} is no importable package name, for example my_pkg")
        if name.partition(".")[0] in sys.stdlib_module_names:
            raise ConfigError(
                f"trusted_packages: {name!r} is part of Python's standard library, not a package of yours"
            )
    folder = os.getcwd()
    if packages and folder not in sys.path:
        sys.path.append(folder)
    return tuple(packages)


def is_allowed(module: str, trusted: Sequence[str]) -> bool:
    """Whether a module lies in composer_rl or a trusted package."""
    return any(module == root or module.startswith(root + ".") for root in (OWN_PACKAGE, *trusted))


def locate(target: Any, *, path: str, trusted: Sequence[str]) -> Any:
    """The class (or, in a trusted package, function) that `target` names.

    Raises ConfigError when it is outside the allowed packages, does not exist, cannot be imported, or is not
    something to build.
    """
    if target == "???":
        raise ConfigError(f"{path}._target_ is required; set it with {path}._target_=<package>.<name>")
    if not isinstance(target, str) or not _DOTTED.fullmatch(target) or "." not in target:
        raise ConfigError(f"{path}._target_ must be a dotted name such as my_pkg.MyClass, got {target!r}")
    if any(part.startswith("_") for part in target.split(".")):
        raise ConfigError(f"{path}._target_ {target} names something private")
    if not is_allowed(target, trusted):
        package = target.partition(".")[0]
        mine = "" if package in sys.stdlib_module_names else f"; if it is yours, add trusted_packages=[{package}]"
        raise ConfigError(f"{path}._target_ {target} is outside composer_rl{mine}")
    found = _resolve(target, path)
    _check_buildable(found, target, path, trusted)
    return found


def _resolve(target: str, path: str) -> Any:
    parts = target.split(".")
    for length in range(len(parts) - 1, 0, -1):
        module_name = ".".join(parts[:length])
        module = _import(module_name, path, target)
        if module is not None:
            return _attribute(module, parts[length:], path, target)
    raise ConfigError(f"{path}._target_ {target}: no package {parts[0]!r} in {os.getcwd()} or on Python's import path")


def _import(name: str, path: str, target: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except MissingExtraError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            return None
        raise ConfigError(f"{path}._target_ {target}: importing {name} needs the module {error.name!r}") from error
    except Exception as error:
        text = " ".join(str(error).split())
        raise ConfigError(
            f"{path}._target_ {target}: importing {name} failed: {type(error).__name__}: {text}"
        ) from error


def _attribute(module: ModuleType, names: Sequence[str], path: str, target: str) -> Any:
    found: Any = module
    for name in names:
        if not hasattr(found, name):
            where = getattr(found, "__name__", str(found))
            known = [key for key, value in vars(found).items() if _is_own_class(key, value, target)]
            if hasattr(found, "__path__"):
                known += [module_info.name for module_info in pkgutil.iter_modules(found.__path__)]
            hint = did_you_mean(name, known, what="it has")
            raise ConfigError(f"{path}._target_ {target}: {where} has no {name}{hint}")
        found = getattr(found, name)
    return found


def _is_own_class(name: str, value: Any, target: str) -> bool:
    own = inspect.isclass(value) and value.__module__.partition(".")[0] == target.partition(".")[0]
    return own and not name.startswith("_")


def _check_buildable(found: Any, target: str, path: str, trusted: Sequence[str]) -> None:
    if inspect.ismodule(found) or not callable(found):
        raise ConfigError(f"{path}._target_ {target} is a {type(found).__name__}, not a class")
    home = getattr(found, "__module__", None) or ""
    if not is_allowed(home, trusted):
        raise ConfigError(f"{path}._target_ {target} is only re-exported there; it belongs to {home or 'no module'}")
    if is_allowed(home, ()) and not (inspect.isclass(found) and is_dataclass(found)):
        raise ConfigError(f"{path}._target_ {target} is no component (a dataclass)")
    if inspect.isclass(found) and inspect.isabstract(found):
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        raise ConfigError(f"{path}._target_ {target} is abstract; it lacks {missing}")
