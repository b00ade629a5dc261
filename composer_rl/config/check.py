"""Check plain configuration values against type hints and plan the objects to build, without building any.

No value is coerced silently: "3" is no int, True is no int, 3.0 is no int. An int is accepted where a float is
asked for, a list where a tuple or a set is, and text where a Path is.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, is_typeddict

from composer_rl.config.hints import describe, is_sequence, kind_of, options_of_union, signature_of
from composer_rl.config.locate import locate
from composer_rl.config.plan import Call, Items, Leaf, Mapped, Node
from composer_rl.config.suggest import did_you_mean, nearest
from composer_rl.errors import ConfigError

MISSING = "???"
_CONTROL_KEYS = ("_target_", "_partial_", "_convert_", "_recursive_", "_args_")
_SCALARS = (bool, int, float, str)


def plan(value: Any, hint: Any, *, path: str, trusted: Sequence[str] = ()) -> Node:
    """The build plan of a resolved value for a field of type `hint`. Raises ConfigError naming `path`."""
    if value == MISSING and isinstance(value, str):
        raise ConfigError(f"{path} is required; set it with {path}=<value>")
    members = options_of_union(hint)
    if len(members) > 1:
        return _plan_union(value, members, hint, path, trusted)
    if hint is Any or isinstance(hint, TypeVar) or hint is object:
        return _plan_untyped(value, path, trusted)
    if hint is None or hint is type(None):
        return _leaf(value, value is None, hint, path)
    if hint in _SCALARS:
        return _plan_scalar(value, hint, path)
    origin = get_origin(hint) or hint
    if origin is Literal:
        return _plan_literal(value, hint, path)
    if inspect.isclass(origin) and not is_typeddict(origin):
        return _plan_class(value, hint, origin, path, trusted)
    if origin is Callable:
        return _plan_callable(value, hint, path, trusted)
    return _plan_rest(value, hint, path)


def _mismatch(value: Any, hint: Any, path: str) -> ConfigError:
    remark = ""
    if str in options_of_union(hint) and isinstance(value, (bool, int, float)):
        remark = f"; quote it to make it text: {path}=\"'{value}'\""
    return ConfigError(f"{path} must be {describe(hint)}, got {kind_of(value)}{remark}")


def _leaf(value: Any, fits: bool, hint: Any, path: str) -> Node:
    if not fits:
        raise _mismatch(value, hint, path)
    return Leaf(value=value)


def _plan_scalar(value: Any, hint: type, path: str) -> Node:
    if hint is float and type(value) is int:
        return Leaf(value=float(value))
    return _leaf(value, type(value) is hint, hint, path)


def _plan_literal(value: Any, hint: Any, path: str) -> Node:
    options = get_args(hint)
    for option in options:
        if type(option) is type(value) and option == value:
            return Leaf(value=option)
    raise ConfigError(f"{path} must be {describe(hint)}, got {kind_of(value)}{_meant(value, options)}")


def _meant(value: Any, options: Sequence[Any]) -> str:
    texts = [option for option in options if isinstance(option, str)]
    match = nearest(value, texts) if isinstance(value, str) else None
    return f"; did you mean {match!r}?" if match is not None else ""


def _plan_union(value: Any, members: tuple[Any, ...], hint: Any, path: str, trusted: Sequence[str]) -> Node:
    exact = [member for member in members if _same_shape(value, member)]
    first_error: ConfigError | None = None
    for member in exact or members:
        try:
            return plan(value, member, path=path, trusted=trusted)
        except ConfigError as error:
            first_error = first_error or error
    if len(exact) == 1 and first_error is not None and not isinstance(value, _SCALARS):
        raise first_error
    if not exact or all(get_origin(member) is not Literal for member in exact):
        raise _mismatch(value, hint, path)
    choices = [option for member in exact for option in get_args(member)]
    others = [member for member in members if member not in exact]
    expected = " or ".join([f"one of {', '.join(map(repr, choices))}", *map(describe, others)])
    raise ConfigError(f"{path} must be {expected}, got {kind_of(value)}{_meant(value, choices)}")


def _same_shape(value: Any, hint: Any) -> bool:
    origin = get_origin(hint) or hint
    if value is None:
        return hint in (None, type(None))
    if origin is Literal:
        return any(type(option) is type(value) for option in get_args(hint))
    if isinstance(value, dict):
        return origin is Callable or (
            inspect.isclass(origin)
            and not issubclass(origin, (*_SCALARS, list, tuple, set, frozenset, Path, enum.Enum, type(None)))
        )
    if isinstance(value, list):
        return inspect.isclass(origin) and (issubclass(origin, (list, tuple, set, frozenset)) or is_sequence(origin))
    return origin is type(value)


def _plan_class(value: Any, hint: Any, origin: type, path: str, trusted: Sequence[str]) -> Node:
    if issubclass(origin, enum.Enum):
        return _plan_enum(value, origin, path)
    if origin is Path or issubclass(origin, Path):
        return Leaf(value=Path(value)) if isinstance(value, str) else _leaf(value, False, hint, path)
    if origin in (list, tuple, set, frozenset) or is_sequence(origin):
        return _plan_items(value, hint, origin, path, trusted)
    if origin is dict or (issubclass(origin, Mapping) and origin.__module__ == "collections.abc"):
        return _plan_mapping(value, hint, path, trusted)
    if not isinstance(value, dict):
        raise _mismatch(value, hint, path)
    if "_target_" in value:
        return plan_component(value, path=path, trusted=trusted, expected=origin)
    if dataclasses.is_dataclass(origin) and not inspect.isabstract(origin):
        return _plan_call(origin, value, path, trusted)
    raise ConfigError(f"{path} must be a {origin.__name__} with a _target_, got {kind_of(value)}")


def _plan_enum(value: Any, hint: type[enum.Enum], path: str) -> Node:
    names = list(hint.__members__)
    if not isinstance(value, str) or value not in names:
        remark = did_you_mean(value, names, what="choices") if isinstance(value, str) else f"; choices: {names}"
        raise ConfigError(f"{path} must be a {hint.__name__}, got {kind_of(value)}{remark}")
    return Leaf(value=hint[value])


def _plan_items(value: Any, hint: Any, origin: type, path: str, trusted: Sequence[str]) -> Node:
    if not isinstance(value, list):
        raise _mismatch(value, hint, path)
    arguments = get_args(hint)
    if origin is tuple and arguments and Ellipsis not in arguments:
        if len(value) != len(arguments):
            raise ConfigError(f"{path} must have {len(arguments)} items, got {len(value)}")
        hints = list(arguments)
    else:
        hints = [arguments[0] if arguments else Any] * len(value)
    items = [
        plan(item, item_hint, path=f"{path}[{index}]", trusted=trusted)
        for index, (item, item_hint) in enumerate(zip(value, hints, strict=True))
    ]
    kind = origin if origin in (tuple, set, frozenset) else list
    return Items(kind=kind, items=items)


def _plan_mapping(value: Any, hint: Any, path: str, trusted: Sequence[str]) -> Node:
    if not isinstance(value, dict) or "_target_" in value:
        raise _mismatch(value, hint, path)
    key_hint, value_hint = get_args(hint) or (Any, Any)
    items: dict[Any, Node] = {}
    for key, item in value.items():
        plan(key, key_hint, path=f"{path}: key {key!r}", trusted=trusted)
        items[key] = plan(item, value_hint, path=f"{path}.{key}", trusted=trusted)
    return Mapped(items=items)


def _plan_callable(value: Any, hint: Any, path: str, trusted: Sequence[str]) -> Node:
    if not isinstance(value, dict) or "_target_" not in value:
        raise ConfigError(
            f"{path} must be a component with a _target_ (and _partial_: true for a function), got {kind_of(value)}"
        )
    return plan_component(value, path=path, trusted=trusted)


def _plan_untyped(value: Any, path: str, trusted: Sequence[str]) -> Node:
    if isinstance(value, dict):
        if "_target_" in value:
            return plan_component(value, path=path, trusted=trusted)
        return _plan_mapping(value, dict[Any, Any], path, trusted)
    if isinstance(value, list):
        return _plan_items(value, list[Any], list, path, trusted)
    return Leaf(value=value)


def _plan_rest(value: Any, hint: Any, path: str) -> Node:
    """Hints that this module has no words for (TypedDict, Annotated remains, ...) are left to typeguard."""
    import typeguard

    try:
        typeguard.check_type(value, hint, collection_check_strategy=typeguard.CollectionCheckStrategy.ALL_ITEMS)
    except typeguard.TypeCheckError as error:
        raise ConfigError(f"{path} must be {describe(hint)}: {error}") from error
    return Leaf(value=value)


def plan_component(
    value: dict[str, Any], *, path: str, trusted: Sequence[str] = (), expected: type | None = None
) -> Call:
    """The build plan of a mapping with a `_target_`; `expected` is a base class or protocol it must satisfy."""
    target = locate(value["_target_"], path=path, trusted=trusted)
    partial = value.get("_partial_", False)
    if not isinstance(partial, bool):
        raise ConfigError(f"{path}._partial_ must be true or false, got {kind_of(partial)}")
    if value.get("_convert_", "all") != "all":
        raise ConfigError(f"{path}._convert_ is always 'all' here; leave it out")
    if value.get("_recursive_", True) is not True or "_args_" in value:
        raise ConfigError(f"{path}: _args_ and _recursive_ are not supported; give settings by name")
    protocol = _check_expected(target, expected, path, partial)
    arguments = {key: item for key, item in value.items() if key not in _CONTROL_KEYS}
    return _plan_call(target, arguments, path, trusted, partial=partial, protocol=protocol)


def _check_expected(target: Any, expected: type | None, path: str, partial: bool) -> type | None:
    """Refuse a class of another family; a Protocol can only be checked on the built object and is returned."""
    if expected is None or partial or not inspect.isclass(target):
        return None
    if getattr(expected, "_is_protocol", False):
        return expected if getattr(expected, "_is_runtime_protocol", False) else None
    if not issubclass(target, expected):
        raise ConfigError(f"{path} must be a {expected.__name__}, but {target.__name__} is none")
    return None


def _plan_call(
    target: Callable[..., Any],
    arguments: dict[str, Any],
    path: str,
    trusted: Sequence[str],
    *,
    partial: bool = False,
    protocol: type | None = None,
) -> Call:
    signature = signature_of(target, path)
    name = getattr(target, "__name__", str(target))
    nodes: dict[str, Node] = {}
    for key, item in arguments.items():
        if key in signature.parameters:
            hint = signature.parameters[key].hint
        elif signature.open_ended and isinstance(key, str):
            hint = Any
        else:
            hint_text = did_you_mean(str(key), signature.parameters, what="its fields are")
            raise ConfigError(f"{path}.{key} is no field of {name}{hint_text}")
        nodes[key] = plan(item, hint, path=f"{path}.{key}", trusted=trusted)
    lacking = [key for key, parameter in signature.parameters.items() if parameter.required and key not in nodes]
    if lacking and not partial:
        raise ConfigError(f"{path}.{lacking[0]} is required by {name}; set it with {path}.{lacking[0]}=<value>")
    return Call(
        target=target,
        arguments=nodes,
        path=path,
        partial=partial,
        protocol=protocol,
        fields=tuple(signature.parameters),
    )
