"""Concrete functions and modules: a recipe with its constants, names and docstring filled in."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from composer_rl.envs.substrates.micro.recipes import RECIPES, UNSEEN_MIXTURES, Recipe
from composer_rl.types import Split

HELDOUT_MODULUS = 5
"""One body in this many is held out, by hash."""

DELETED_BODY = "..."
"""What stands in the prompt where the body was."""


@dataclass(frozen=True, kw_only=True)
class FunctionSpec:
    """One generated function."""

    recipe: str
    """Key into RECIPES."""
    name: str
    parameter: str
    n: Any
    """First constant: an int, or a word for str recipes."""
    m: Any = None
    """Second constant of a mixture."""
    vague: bool = False
    """Whether the docstring leaves the constant out."""

    @property
    def definition(self) -> Recipe:
        """The recipe of this function."""
        return RECIPES[self.recipe]

    @property
    def body(self) -> str:
        """The original body, one line."""
        return self.definition.code.format(x=self.parameter, n=self.n, m=self.m)

    @property
    def doc(self) -> str:
        """The one-line docstring."""
        recipe = self.definition
        template = recipe.vague_doc if self.vague and recipe.vague_doc else recipe.doc
        return template.format(x=self.parameter, n=self.n, m=self.m)

    @property
    def split(self) -> Split:
        """Side of the partition: unseen mixtures and one body in HELDOUT_MODULUS, by hash, are held out.

        Names do not count, so a body is on the same side wherever it occurs.
        """
        return body_split(self.recipe, self.n, self.m)

    def source(self, body: str | None = None) -> str:
        """Python text of the function with `body` (default: the original one) under its docstring.

        A body of several lines keeps its relative indentation; it cannot leave the function.
        """
        text = textwrap.dedent(self.body if body is None else body).strip("\n")
        lines = textwrap.indent(text, "    ")
        return f'def {self.name}({self.parameter}):\n    """{self.doc}"""\n{lines}\n'

    def __call__(self, value: Any) -> Any:
        """Result of the original body for one argument."""
        return compiled(self.recipe)(value, self.n, self.m)

    def with_constants(self, n: Any, m: Any = None) -> FunctionSpec:
        """The same function with other constants."""
        return replace(self, n=n, m=m)


@cache
def body_split(recipe: str, n: Any, m: Any = None) -> Split:
    """Split of a body, by the hash of recipe and constants."""
    if recipe in UNSEEN_MIXTURES:
        return "heldout"
    digest = hashlib.sha256(f"{recipe}|{n}|{m}".encode()).digest()
    return "heldout" if int.from_bytes(digest[:4], "big") % HELDOUT_MODULUS == 0 else "train"


@cache
def constants_of(recipe: str, split: Split) -> tuple[Any, ...]:
    """Values of {n} for which the one-operation `recipe` is on the given side of the split."""
    return tuple(n for n in RECIPES[recipe].constants if body_split(recipe, n) == split)


@cache
def compiled(recipe: str) -> Callable[[Any, Any, Any], Any]:
    """The recipe as a Python function of (argument, n, m); trusted code, generated here."""
    template = RECIPES[recipe].code.replace("'{n}'", "{n}")
    source = f"def run(x, n, m):\n    {template.format(x='x', n='n', m='m')}\n"
    scope: dict[str, Any] = {}
    exec(compile(source, f"<recipe {recipe}>", "exec"), scope)
    function: Callable[[Any, Any, Any], Any] = scope["run"]
    return function


def other_constants(function: FunctionSpec, argument: Any) -> list[Any]:
    """Constants that give another result for `argument`; held-out bodies are left out, unless all are held out."""
    run, recipe = compiled(function.recipe), function.definition
    truth = function(argument)
    values = [n for n in recipe.constants if run(argument, n, function.m) != truth]
    return [n for n in values if body_split(recipe.name, n, function.m) == "train"] or values
