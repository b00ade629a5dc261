"""Type hints of a component's fields, resolved without importing anything heavy."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from composer_rl.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameter:
    """One setting of a component."""

    name: str
    hint: Any
    required: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signature:
    """The settings of a component; `open_ended` when it takes any name (`**kwargs`)."""

    parameters: dict[str, Parameter]
    open_ended: bool


def signature_of(target: Callable[..., Any], path: str) -> Signature:
    """The settings that `target` takes by name, with their types."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path}: {target!r} does not tell what arguments it takes") from error
    hints = _hints_of(target, path)
    named: dict[str, Parameter] = {}
    open_ended = False
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            open_ended = True
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            hint = hints.get(parameter.name, Any)
            hint = hint.type if isinstance(hint, dataclasses.InitVar) else hint
            required = parameter.default is parameter.empty
            named[parameter.name] = Parameter(name=parameter.name, hint=hint, required=required)
    return Signature(parameters=named, open_ended=open_ended)


def _hints_of(target: Callable[..., Any], path: str) -> dict[str, Any]:
    source: Any = target
    if inspect.isclass(target) and not dataclasses.is_dataclass(target):
        source = target.__init__
    local_names: dict[str, Any] = {}
    while True:
        try:
            return typing.get_type_hints(source, localns=local_names, include_extras=False)
        except NameError as error:
            name = error.name
            if name is None or name in local_names:
                raise ConfigError(f"{path}: the types of {target!r} cannot be read: {error}") from error
            local_names[name] = _type_checking_import(target, name, path)


def _type_checking_import(target: Callable[..., Any], name: str, path: str) -> Any:
    """What `if TYPE_CHECKING: from composer_rl.x.base import Name` binds.

    In a user's package, where such an import may be heavy, the name stands for any type.
    """
    classes = inspect.getmro(target) if inspect.isclass(target) else (target,)
    modules = [getattr(owner, "__module__", "") for owner in classes]
    if not modules[0].startswith("composer_rl."):
        return Any
    for module in modules:
        filename = getattr(sys.modules.get(module), "__file__", None)
        if filename is None or not module.startswith("composer_rl."):
            continue
        for node in ast.walk(ast.parse(Path(filename).read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("composer_rl."):
                continue
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return getattr(importlib.import_module(str(node.module)), alias.name)
    raise ConfigError(f"{path}: {modules[0]} uses the type {name!r} for a setting, but does not import it at run time")


def options_of_union(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the hint itself alone."""
    if get_origin(hint) in (Union, types.UnionType):
        return get_args(hint)
    return (hint,)


def describe(hint: Any) -> str:
    """A type in the words of an error message: "float or null", "one of 'a', 'b'", "a list of str"."""
    members = options_of_union(hint)
    if len(members) > 1:
        return " or ".join(describe(member) for member in members)
    if hint is None or hint is type(None):
        return "null"
    if hint is Any:
        return "anything"
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(repr(argument) for argument in arguments)
    if hint is Path:
        return "a path"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"a mapping of {describe(arguments[1])}" if len(arguments) == 2 else "a mapping"
    if origin is tuple and Ellipsis not in arguments:
        return "a list of " + ", ".join(describe(argument) for argument in arguments)
    if (isinstance(origin, type) and issubclass(origin, (list, tuple, set, frozenset))) or is_sequence(origin):
        return f"a list of {describe(arguments[0])}" if arguments else "a list"
    if isinstance(hint, type):
        return "a mapping" if hint is dict else hint.__name__
    return str(hint).replace("typing.", "").replace("collections.abc.", "")


def is_sequence(origin: Any) -> bool:
    """Whether a generic's origin is `collections.abc.Sequence` or a wider iterable that a list satisfies."""
    return inspect.isclass(origin) and origin.__module__ == "collections.abc" and issubclass(list, origin)


def kind_of(value: Any) -> str:
    """A value in the words of an error message: "'fast' (str)"."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return f"a mapping ({', '.join(map(str, list(value)[:4])) or 'empty'})"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return f"{value!r} ({type(value).__name__})"
