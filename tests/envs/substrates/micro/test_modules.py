"""Functions as text and as callables."""

from __future__ import annotations

from typing import Any

from composer_rl.envs.substrates.micro.modules import FunctionSpec, body_split, constants_of, other_constants
from composer_rl.envs.substrates.micro.recipes import FAMILIES, RECIPES, UNSEEN_MIXTURES
from composer_rl.envs.substrates.micro.tasks import TaskSpec

ADD = FunctionSpec(recipe="sum_add", name="calc", parameter="xs", n=17)


def test_source_reads_as_python() -> None:
    assert ADD.source() == 'def calc(xs):\n    """Add 17 to the sum of xs."""\n    return sum(xs) + 17\n'
    assert FunctionSpec(recipe="suffix", name="f", parameter="s", n="oak", vague=True).doc == "Put a word after s."


def test_a_body_of_several_lines_stays_inside_the_function() -> None:
    body = "if xs:\n    return 1\nreturn 2\ndef calc(xs): return 3"
    scope: dict[str, Any] = {}
    exec(ADD.source(body), scope)
    assert scope["calc"]([1]) == 1
    assert scope["calc"]([]) == 2


def test_text_and_callable_agree(train_specs: list[TaskSpec]) -> None:
    for spec in train_specs[:100]:
        scope: dict[str, Any] = {}
        exec(spec.target.source(), scope)
        for case in spec.fail_to_pass:
            assert scope[spec.target.name](*case.args) == case.expected == spec.target(case.args[0])


def test_the_split_follows_the_body_alone() -> None:
    assert ADD.split == FunctionSpec(recipe="sum_add", name="pick", parameter="row", n=17, vague=True).split
    assert all(body_split(name, 3, 4) == "heldout" for name in UNSEEN_MIXTURES)
    for recipe in FAMILIES:
        held, train = constants_of(recipe.name, "heldout"), constants_of(recipe.name, "train")
        assert held
        assert len(train) > len(held)
        assert set(held) | set(train) == set(RECIPES[recipe.name].constants)


def test_other_constants_change_the_result_and_are_trained_ones() -> None:
    values = other_constants(ADD, [])
    assert 17 not in values
    assert values
    assert all(body_split("sum_add", n) == "train" for n in values)
