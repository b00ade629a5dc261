"""The rules no prompt states, and the guesses that leave a new repository's rule open."""

from __future__ import annotations

from itertools import combinations

from composer_rl.envs.substrates.micro.hidden_rules import (
    CANDIDATES_OF,
    FUNCTION_KEY,
    KEY_OF,
    KEYS,
    KNOWN_REPOSITORIES,
    NEW_REPOSITORIES,
    REPOSITORIES,
    TOOL_OF,
    TOOLS,
)


def test_every_tool_exists_in_one_repository_and_takes_one_key() -> None:
    assert sorted(TOOL_OF.values()) == sorted(TOOLS)
    assert set(KEY_OF) == set(TOOLS)
    assert set(KEY_OF.values()) == set(KEYS)
    assert FUNCTION_KEY not in KEYS


def test_known_and_new_repositories_are_all_of_them() -> None:
    assert (*KNOWN_REPOSITORIES, *NEW_REPOSITORIES) == REPOSITORIES
    assert len(NEW_REPOSITORIES) == 2


def test_a_new_repository_has_four_guesses_of_its_own_with_the_right_one_among_them() -> None:
    assert set(CANDIDATES_OF) == set(NEW_REPOSITORIES)
    for repository, candidates in CANDIDATES_OF.items():
        assert len(set(candidates)) == len(candidates) == 4
        assert set(candidates) <= set(TOOLS)
        assert TOOL_OF[repository] in candidates
    for first, second in combinations(CANDIDATES_OF.values(), 2):
        assert not set(first) & set(second), "the same guess in both makes a policy take them for one repository"
