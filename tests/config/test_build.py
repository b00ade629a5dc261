"""Every value is checked against the field it goes to, and only then is anything built."""

from __future__ import annotations

import enum
import sys
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypedDict, runtime_checkable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_rl.config.build import build, prepare, resolve
from composer_rl.config.check import plan
from composer_rl.errors import ConfigError, MissingExtraError


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


class Shape(TypedDict):
    sides: int


@runtime_checkable
class Greeter(Protocol):
    def greet(self) -> str: ...


class Base(ABC):
    @abstractmethod
    def act(self) -> None: ...


@dataclass(kw_only=True)
class Part(Base):
    size: int = 1

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"size must be at least 0, got {self.size}")

    def act(self) -> None:
        return

    def greet(self) -> str:
        return "hello"


@dataclass(kw_only=True)
class Nested:
    size: float = 1.0
    limits: dict[str, int] = field(default_factory=dict)


@dataclass(kw_only=True)
class Whole:
    name: str = "x"
    count: int = 0
    rate: float = 0.0
    flag: bool = False
    mode: Literal["a", "b", 3] = "a"
    mode_or_number: Literal["auto"] | int = "auto"
    maybe: float | None = None
    path: Path = Path()
    colour: Colour = Colour.RED
    names: list[str] = field(default_factory=list)
    pair: tuple[int, str] = (0, "")
    many: tuple[float, ...] = ()
    unique: set[int] = field(default_factory=set)
    anything: Any = None
    sequence: Sequence[int] = ()
    mapping: Mapping[str, float] = field(default_factory=dict)
    shape: Shape | None = None
    part: Base | None = None
    parts: dict[str, Part] = field(default_factory=dict)
    part_list: list[Base] = field(default_factory=list)
    nested: Nested = field(default_factory=Nested)
    greeter: Greeter | None = None
    function: Callable[..., Any] | None = None
    start: InitVar[int] = 0
    state: int = field(init=False, default=5)

    def __post_init__(self, start: int) -> None:
        self.state = start


@dataclass(kw_only=True)
class Demanding:
    needed: int


@dataclass(kw_only=True)
class Faulty:
    kind: Literal["key", "type", "extra"] = "key"

    def __post_init__(self) -> None:
        if self.kind == "key":
            raise KeyError("a bug")
        if self.kind == "type":
            raise TypeError("bad operand")
        raise MissingExtraError("this", package="pkg", extra="lora")


def double(value: int, *, factor: int = 2) -> int:
    return value * factor


def takes_anything(**settings: Any) -> dict[str, Any]:
    return settings


PACKAGE = "build_lab"


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """An importable package `build_lab` that holds the classes above."""
    module = types.ModuleType(PACKAGE)
    for thing in (Part, Whole, Demanding, Faulty, Nested, Base, double, takes_anything):
        setattr(module, thing.__name__, thing)
        monkeypatch.setattr(thing, "__module__", PACKAGE)
    module.number = 3  # type: ignore[attr-defined]
    module.TestPath = Path  # type: ignore[attr-defined]
    for name in ("Any", "Literal", "Path", "Sequence", "Mapping", "Callable", "InitVar"):
        setattr(module, name, globals()[name])
    for name in ("Colour", "Shape", "Greeter"):
        setattr(module, name, globals()[name])
    monkeypatch.setitem(sys.modules, PACKAGE, module)


def make(target: str = "Whole", **settings: Any) -> Any:
    return build({"_target_": f"{PACKAGE}.{target}", **settings}, path="it", trusted=[PACKAGE])


def error(target: str = "Whole", **settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        make(target, **settings)
    return str(caught.value)


def test_values_of_every_kind() -> None:
    part = {"_target_": f"{PACKAGE}.Part", "size": 4}
    whole = make(
        name="n",
        count=3,
        rate=2,
        flag=True,
        mode="b",
        mode_or_number=5,
        maybe=None,
        path="a/b",
        colour="GREEN",
        names=["x"],
        pair=[1, "y"],
        many=[1, 2.5],
        unique=[1, 1, 2],
        anything={"deep": [part, {"k": 1}]},
        sequence=[1],
        mapping={"a": 1},
        shape={"sides": 4},
        part=part,
        parts={"first": part},
        part_list=[part, part],
        nested={"size": 3, "limits": {"a": 1}},
        greeter=part,
        function={"_target_": f"{PACKAGE}.double", "_partial_": True, "factor": 3},
        start=9,
    )
    assert type(whole.rate) is float
    assert whole.mode_or_number == 5
    assert whole.path == Path("a/b")
    assert whole.colour is Colour.GREEN
    assert whole.pair == (1, "y")
    assert whole.many == (1.0, 2.5)
    assert whole.unique == {1, 2}
    assert whole.anything["deep"][0].size == 4
    assert type(whole.mapping["a"]) is float
    assert whole.part_list[0] is not whole.part_list[1]
    assert whole.nested == Nested(size=3.0, limits={"a": 1})
    assert isinstance(whole.function, partial)
    assert whole.function(2) == 6
    assert whole.state == 9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nmae": "x"}, "it.nmae is no field of Whole; did you mean name?"),
        ({"zzz": 1}, "it.zzz is no field of Whole; its fields are: "),
        ({"state": 1}, "it.state is no field of Whole"),
        ({"count": "3"}, "it.count must be int, got '3' (str)"),
        ({"count": True}, "it.count must be int, got True (bool)"),
        ({"count": 3.0}, "it.count must be int, got 3.0 (float)"),
        ({"count": None}, "it.count must be int, got null"),
        ({"flag": 1}, "it.flag must be bool, got 1 (int)"),
        ({"rate": True}, "it.rate must be float, got True (bool)"),
        ({"rate": "1"}, "it.rate must be float, got '1' (str)"),
        ({"name": 2603.2443}, "it.name must be str, got 2603.2443 (float); quote it to make it text: it.name=\"'26"),
        ({"mode": "aa"}, "it.mode must be one of 'a', 'b', 3, got 'aa' (str); did you mean 'a'?"),
        ({"mode": True}, "it.mode must be one of 'a', 'b', 3, got True (bool)"),
        ({"mode_or_number": "atuo"}, "it.mode_or_number must be one of 'auto' or int, got 'atuo' (str); did you mean"),
        ({"mode_or_number": 1.5}, "it.mode_or_number must be one of 'auto' or int, got 1.5 (float)"),
        ({"maybe": "x"}, "it.maybe must be float or null, got 'x' (str)"),
        ({"path": 3}, "it.path must be a path, got 3 (int)"),
        ({"colour": "GREN"}, "it.colour must be a Colour, got 'GREN' (str); did you mean GREEN?"),
        ({"names": "x"}, "it.names must be a list of str, got 'x' (str)"),
        ({"names": ["x", 1]}, "it.names[1] must be str, got 1 (int)"),
        ({"pair": [1]}, "it.pair must have 2 items, got 1"),
        ({"pair": [1, 2]}, "it.pair[1] must be str, got 2 (int)"),
        ({"sequence": ["a"]}, "it.sequence[0] must be int"),
        ({"mapping": {"a": "b"}}, "it.mapping.a must be float, got 'b' (str)"),
        ({"mapping": {1: 1.0}}, "it.mapping: key 1 must be str"),
        ({"shape": {"sides": "x"}}, "it.shape must be "),
        ({"part": {"size": 1}}, "it.part must be a Base with a _target_, got a mapping (size)"),
        ({"part": {"_target_": f"{PACKAGE}.Nested"}}, "it.part must be a Base, but Nested is none"),
        ({"part": {"_target_": f"{PACKAGE}.Base"}}, "is abstract; it lacks act"),
        ({"part": 3}, "it.part must be Base or null, got 3 (int)"),
        ({"parts": {"a": {"_target_": f"{PACKAGE}.Part", "sise": 1}}}, "it.parts.a.sise is no field of Part; did you"),
        ({"part_list": [{"_target_": f"{PACKAGE}.Part", "size": -1}]}, "it.part_list[0].size must be at least 0, got"),
        ({"nested": {"sise": 1}}, "it.nested.sise is no field of Nested; did you mean size?"),
        ({"nested": {"limits": {"a": 1.5}}}, "it.nested.limits.a must be int, got 1.5 (float)"),
        ({"greeter": {"_target_": f"{PACKAGE}.Nested"}}, "it.greeter must be a Greeter, got Nested"),
        ({"function": "double"}, "it.function must be "),
        ({"count": "???"}, "it.count is required; set it with it.count=<value>"),
        ({"_convert_": "none"}, "it._convert_ is always 'all' here"),
        ({"_args_": [1]}, "it: _args_ and _recursive_ are not supported"),
        ({"_partial_": "yes"}, "it._partial_ must be true or false"),
    ],
)
def test_wrong_values(settings: dict[str, Any], message: str) -> None:
    assert message in error(**settings)


def test_nothing_is_built_before_everything_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    monkeypatch.setattr(Part, "__post_init__", lambda self: built.append("part"))
    part = {"_target_": f"{PACKAGE}.Part"}
    config = {"trusted_packages": [PACKAGE], "first": part, "second": {"_target_": f"{PACKAGE}.Whole", "count": "x"}}
    with pytest.raises(ConfigError, match=r"second\.count must be int"):
        prepare(config)
    assert built == []


def test_required_fields() -> None:
    assert error("Demanding") == "it.needed is required by Demanding; set it with it.needed=<value>"


def test_errors_of_constructors() -> None:
    assert error("Part", size=-1) == "it.size must be at least 0, got -1"
    assert error("Faulty", kind="type") == "it: bad operand"
    with pytest.raises(KeyError, match="a bug"):
        make("Faulty")
    with pytest.raises(MissingExtraError):
        make("Faulty", kind="extra")


def test_functions_and_open_ended_targets() -> None:
    assert make("double", value=4) == 8
    assert "it.value must be int" in error("double", value="4")
    assert make("takes_anything", a=1, b=[2]) == {"a": 1, "b": [2]}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("os.system", "is outside composer_rl"),
        (f"{PACKAGE}.number", "is a int, not a class"),
        (f"{PACKAGE}.Pat", "build_lab has no Pat; did you mean Part?"),
        (f"{PACKAGE}.TestPath", "is only re-exported there; it belongs to pathlib"),
        (f"{PACKAGE}._private", "names something private"),
        ("composer_rl.errors.ConfigError", "is no component"),
        ("composer_rl.po.bas.PolicyObjective", "composer_rl.po has no bas; did you mean base?"),
        ("composer_rl.config.build.importlib.import_module", "it belongs to importlib"),
        ("composer_rl", "must be a dotted name"),
        (3, "must be a dotted name"),
        ("???", "it._target_ is required"),
    ],
)
def test_targets_out_of_reach(target: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build({"_target_": target}, path="it", trusted=[PACKAGE])
    assert message in str(caught.value)


def test_trusted_packages_must_be_ones_own() -> None:
    with pytest.raises(ConfigError, match="standard library"):
        build({"_target_": "subprocess.run"}, path="it", trusted=["subprocess"])
    with pytest.raises(ConfigError, match="no importable package name"):
        build({"_target_": "a.B"}, path="it", trusted=["a-b"])


def test_group_must_have_its_base_class() -> None:
    config = {"stage": {"_target_": "composer_rl.runtime.Runtime"}}
    with pytest.raises(ConfigError, match="stage must be a Stage, but Runtime is none"):
        prepare(config, bases={"stage": "composer_rl.stages.base.Stage"})


def test_group_without_an_option() -> None:
    with pytest.raises(ConfigError, match=r"po has no _target_: choose an option of the group first \(po=<option>\)"):
        prepare({"po": {"epsilon": 0.1}}, groups=["po"])
    with pytest.raises(ConfigError, match="po must be an option of the config group po, got 'dapo'"):
        prepare({"po": "dapo"}, groups=["po"])


def test_groups_of_the_users_own_are_built_and_null_groups_are_left_out() -> None:
    prepared = prepare({"trusted_packages": [PACKAGE], "gadget": {"_target_": f"{PACKAGE}.Part"}, "po": None})
    assert list(prepared.components) == ["gadget"]
    assert prepared.settings.seed == 0


def test_interpolations_are_resolved_to_plain_containers() -> None:
    resolved = resolve({"a": {"b": [1, "${c}"]}, "c": {"d": 2}})
    assert resolved == {"a": {"b": [1, {"d": 2}]}, "c": {"d": 2}}
    assert type(resolved["a"]) is dict
    assert type(resolved["a"]["b"]) is list
    with pytest.raises(ConfigError, match=r"a.b: the interpolation \$\{cc\} points at nothing; did you mean c\?"):
        resolve({"a": {"b": "${cc}"}, "c": 1})


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)


@given(scalars)
def test_no_scalar_is_coerced(value: Any) -> None:
    """Whatever passes a check comes out as it went in, except that an int becomes a float where one is asked for."""
    for hint in (int, str, bool, float, int | None, Literal["a", 1]):
        try:
            built = plan(value, hint, path="x").build()
        except ConfigError:
            continue
        assert built == value
        assert type(built) is type(value) or (hint is float and type(value) is int)


plain_data = st.recursive(
    scalars,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children, max_size=3),
)


@given(plain_data)
def test_untyped_data_passes_unchanged(value: Any) -> None:
    if "???" not in repr(value) and "_target_" not in repr(value):
        assert plan(value, Any, path="x").build() == value
