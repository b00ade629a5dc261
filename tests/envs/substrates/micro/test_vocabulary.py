"""The phrases of the tiny tokenizer."""

from __future__ import annotations

from composer_rl.envs.substrates.micro.hidden_rules import KEYS, REPOSITORIES, TOOLS
from composer_rl.envs.substrates.micro.names import PARAMETER_NAMES, WORDS
from composer_rl.envs.substrates.micro.vocabulary import phrases


def test_content_words_are_phrases_and_none_comes_twice() -> None:
    pieces = phrases()
    assert len(set(pieces)) == len(pieces)
    names = [name for names in PARAMETER_NAMES.values() for name in names if len(name) > 1]
    wanted = {*TOOLS, *KEYS, *REPOSITORIES, *WORDS, *names, *(str(number) for number in range(10, 100))}
    assert wanted <= set(pieces)
