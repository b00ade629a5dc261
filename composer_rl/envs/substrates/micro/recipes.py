"""What a function of the testbed can do: a docstring, a body and the input that reveals the constant.

Templates have the placeholders {x} (the parameter), {n} (the constant) and {m} (the second constant of a mixture).
A family with a vague form has a docstring that leaves {n} out; the telling argument is one for which the result
shows {n} itself, so the failing assert of a vague task is enough to solve it.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter
from typing import Any

from composer_rl.envs.substrates.micro.names import WORDS, ValueKind

NUMBERS = tuple(range(2, 80))
"""Values of a number constant."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One kind of function body."""

    name: str
    kind: ValueKind
    """Kind of the parameter."""
    doc: str
    """Docstring template that states every constant."""
    code: str
    """Body template, one line."""
    telling: Any
    """JSON argument whose result shows {n}."""
    vague_doc: str | None = None
    """Docstring template without {n}; None when the recipe has no vague form."""
    constants: tuple[Any, ...] = NUMBERS
    """Values that {n} may take."""
    second_constants: tuple[Any, ...] = ()
    """Values that {m} may take; empty for a one-operation recipe."""

    @property
    def is_mixture(self) -> bool:
        """Whether the body is made of two operations."""
        return bool(self.second_constants)


def literals(template: str) -> list[str]:
    """The literal pieces of a template, placeholders left out, in order."""
    return [text for text, _, _, _ in Formatter().parse(template) if text]


def _family(
    name: str, kind: ValueKind, telling: Any, code: str, doc: str, vague_doc: str, constants: tuple[Any, ...] = NUMBERS
) -> Recipe:
    return Recipe(name=name, kind=kind, telling=telling, code=code, doc=doc, vague_doc=vague_doc, constants=constants)


FAMILIES: tuple[Recipe, ...] = (
    _family("add", "int", 0, "return {x} + {n}", "Add {n} to {x}.", "Add a number to {x}."),
    _family("subtract_from", "int", 0, "return -{x} + {n}", "Take {x} from {n}.", "Take {x} from a number."),
    _family("multiply", "int", 1, "return {x} * {n}", "Multiply {x} by {n}.", "Multiply {x} by a number."),
    _family("cap", "int", 99, "return min({x}, {n})", "Cap {x} at {n}.", "Cap {x} at a number."),
    _family(
        "raise_to", "int", 0, "return max({x}, {n})", "Raise {x} to {n} or more.", "Raise {x} to a number or more."
    ),
    _family("gap", "int", 0, "return abs({x} - {n})", "Measure {x} against {n}.", "Measure {x} against a number."),
    _family(
        "or_number", "int", 0, "return {x} or {n}", "Return {x}, or {n} for zero.", "Return {x}, or a number for zero."
    ),
    _family(
        "square_add", "int", 0, "return {x} * {x} + {n}", "Square {x} and add {n}.", "Square {x} and add a number."
    ),
    _family(
        "sum_add", "list", [], "return sum({x}) + {n}", "Add {n} to the sum of {x}.", "Add a number to the sum of {x}."
    ),
    _family(
        "len_add",
        "list",
        [],
        "return len({x}) + {n}",
        "Add {n} to the size of {x}.",
        "Add a number to the size of {x}.",
    ),
    _family(
        "sum_multiply",
        "list",
        [1],
        "return sum({x}) * {n}",
        "Multiply the sum of {x} by {n}.",
        "Multiply the sum of {x} by a number.",
    ),
    _family(
        "len_multiply",
        "list",
        [3],
        "return len({x}) * {n}",
        "Multiply the size of {x} by {n}.",
        "Multiply the size of {x} by a number.",
    ),
    _family(
        "max_default",
        "list",
        [],
        "return max({x}, default={n})",
        "Return the largest of {x}, or {n}.",
        "Return the largest of {x}, or a number.",
    ),
    _family(
        "first_default",
        "list",
        [],
        "return {x}[0] if {x} else {n}",
        "Return the first of {x}, or {n}.",
        "Return the first of {x}, or a number.",
    ),
    _family("append", "list", [], "return {x} + [{n}]", "Put {n} after {x}.", "Put a number after {x}."),
    _family("prepend", "list", [], "return [{n}] + {x}", "Put {n} before {x}.", "Put a number before {x}."),
    _family(
        "each_add",
        "list",
        [0],
        "return [v + {n} for v in {x}]",
        "Add {n} to each of {x}.",
        "Add a number to each of {x}.",
    ),
    _family(
        "each_multiply",
        "list",
        [1],
        "return [v * {n} for v in {x}]",
        "Multiply each of {x} by {n}.",
        "Multiply each of {x} by a number.",
    ),
    _family(
        "each_cap",
        "list",
        [99],
        "return [min(v, {n}) for v in {x}]",
        "Cap each of {x} at {n}.",
        "Cap each of {x} at a number.",
    ),
    _family("suffix", "str", "", "return {x} + '{n}'", "Put '{n}' after {x}.", "Put a word after {x}.", WORDS),
    _family("prefix", "str", "", "return '{n}' + {x}", "Put '{n}' before {x}.", "Put a word before {x}.", WORDS),
    _family(
        "or_word",
        "str",
        "",
        "return {x} or '{n}'",
        "Return {x}, or '{n}' for none.",
        "Return {x}, or a word for none.",
        WORDS,
    ),
    _family(
        "join",
        "str",
        "",
        "return '{n}'.join([{x}, {x}])",
        "Join {x} to itself with '{n}'.",
        "Join {x} to itself with a word.",
        WORDS,
    ),
    _family(
        "later",
        "str",
        "",
        "return max({x}, '{n}')",
        "Return the later of {x} and '{n}'.",
        "Return the later of {x} and a word.",
        WORDS,
    ),
)
"""One-operation recipes; each has a vague form."""


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One operation of a mixture, as the first and as the second step."""

    name: str
    first_doc: str
    second_doc: str
    first_code: str
    second_code: str


CLAUSES: tuple[Clause, ...] = (
    Clause(
        name="add",
        first_doc="Add {n} to {x}",
        second_doc=", then add {m}.",
        first_code="{x} = {x} + {n}; ",
        second_code="return {x} + {m}",
    ),
    Clause(
        name="subtract",
        first_doc="Take {n} off {x}",
        second_doc=", then take off {m}.",
        first_code="{x} = {x} - {n}; ",
        second_code="return {x} - {m}",
    ),
    Clause(
        name="multiply",
        first_doc="Multiply {x} by {n}",
        second_doc=", then multiply by {m}.",
        first_code="{x} = {x} * {n}; ",
        second_code="return {x} * {m}",
    ),
    Clause(
        name="cap",
        first_doc="Cap {x} at {n}",
        second_doc=", then cap at {m}.",
        first_code="{x} = min({x}, {n}); ",
        second_code="return min({x}, {m})",
    ),
    Clause(
        name="raise",
        first_doc="Raise {x} to {n}",
        second_doc=", then raise to {m}.",
        first_code="{x} = max({x}, {n}); ",
        second_code="return max({x}, {m})",
    ),
    Clause(
        name="modulo",
        first_doc="Reduce {x} modulo {n}",
        second_doc=", then reduce modulo {m}.",
        first_code="{x} = {x} % {n}; ",
        second_code="return {x} % {m}",
    ),
)
"""Operations that mixtures are made of."""

UNSEEN_MIXTURES = ("add_multiply", "multiply_subtract", "subtract_cap", "cap_raise", "raise_modulo", "modulo_add")
"""Mixtures that no training task uses; each clause is left out once as a first and once as a second step."""


def _mixture(first: Clause, second: Clause) -> Recipe:
    return Recipe(
        name=f"{first.name}_{second.name}",
        kind="int",
        doc=first.first_doc + second.second_doc,
        code=first.first_code + second.second_code,
        telling=None,
        constants=tuple(range(2, 40)),
        second_constants=tuple(range(2, 40)),
    )


MIXTURES: tuple[Recipe, ...] = tuple(
    _mixture(first, second) for first in CLAUSES for second in CLAUSES if first is not second
)
"""All ordered pairs of different clauses: 30 two-operation recipes, 6 of them unseen."""

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in FAMILIES + MIXTURES}
"""Every recipe by name."""
