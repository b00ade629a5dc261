"""Recipes: the telling argument tells, mixtures are complete and each clause is held out evenly."""

from __future__ import annotations

from collections import Counter

import pytest

from composer_rl.envs.substrates.micro.modules import FunctionSpec
from composer_rl.envs.substrates.micro.names import LOOP_NAME, PARAMETER_NAMES, PLACEHOLDER_NUMBERS, WORDS
from composer_rl.envs.substrates.micro.recipes import (
    CLAUSES,
    FAMILIES,
    MIXTURES,
    NUMBERS,
    RECIPES,
    UNSEEN_MIXTURES,
    Recipe,
    literals,
)


@pytest.mark.parametrize("recipe", FAMILIES, ids=lambda recipe: recipe.name)
def test_the_telling_argument_shows_the_constant(recipe: Recipe) -> None:
    n = recipe.constants[5]
    function = FunctionSpec(recipe=recipe.name, name="calc", parameter="p", n=n)
    assert function(recipe.telling) in (n, [n])


@pytest.mark.parametrize("recipe", FAMILIES, ids=lambda recipe: recipe.name)
def test_the_vague_docstring_leaves_the_constant_out(recipe: Recipe) -> None:
    assert recipe.vague_doc is not None
    assert "{n}" in recipe.doc
    assert "{n}" not in recipe.vague_doc


def test_names_do_not_clash() -> None:
    names = [name for kind in PARAMETER_NAMES.values() for name in kind]
    assert len(set(names)) == len(names)
    assert LOOP_NAME not in names
    assert not set(PLACEHOLDER_NUMBERS) & set(NUMBERS)
    assert len(set(WORDS)) == len(WORDS)


def test_there_are_at_least_sixteen_families_and_twenty_four_mixtures() -> None:
    assert len(FAMILIES) >= 16
    assert len(MIXTURES) >= 24
    assert len(RECIPES) == len(FAMILIES) + len(MIXTURES)


def test_each_clause_is_unseen_once_in_either_place() -> None:
    pairs = [name.split("_") for name in UNSEEN_MIXTURES]
    names = Counter(clause.name for clause in CLAUSES)
    assert Counter(first for first, _ in pairs) == names
    assert Counter(second for _, second in pairs) == names
    assert set(UNSEEN_MIXTURES) <= {mixture.name for mixture in MIXTURES}


def test_literals_leave_placeholders_out() -> None:
    assert literals("return [v + {n} for v in {x}]") == ["return [v + ", " for v in ", "]"]
