"""The words and phrases of the testbed, each one token of the tiny tokenizer."""

from __future__ import annotations

from composer_rl.envs.substrates.micro.hidden_rules import KEYS, REPOSITORIES, TOOLS
from composer_rl.envs.substrates.micro.names import (
    FUNCTION_NAMES,
    PARAMETER_NAMES,
    PLACEHOLDER_NAMES,
    PLACEHOLDER_WORDS,
    WORDS,
)
from composer_rl.envs.substrates.micro.recipes import CLAUSES, FAMILIES, literals

BOILERPLATE = (
    "Tools: ", "repo ", "\ndef ", "def ", "):\n    \"\"\"", "\"\"\"\n    ", "...\n", "\n",
    "FAILED assert ", " == ", ", ",
    '{"name": "', '", "arguments": {"function": "', '", "', '": "', '"}}',
    '{"name: "', '", "arguments": "function": "', '"}', "}}",
    "ToolError: no tool ", "TypeError: ", "() got ", "() misses ", " must be a string",
    "NameError: name '", "' is not defined", "LookupError: no function ", "AssertionError: ", ", got ", "None",
    "SyntaxError: invalid syntax", "JSONDecodeError: ", "RepeatedFailure: ", "not a call with name and arguments",
    "Expecting value", "Expecting ',' delimiter", "Expecting ':' delimiter", "Unterminated string starting at",
    "Expecting property name enclosed in double quotes", "Extra data", "Invalid control character at",
    "Reminder: ", "the tools here are ", "(function, ", ").", "tool arguments must be valid JSON, for ",
    "the arguments of ", " are (function, ", "the names in scope are ", " must be ", "that call failed before; ",
    "look at the error and try again.",
)  # fmt: skip
"""Pieces of prompts, calls, errors and hints."""


def phrases() -> list[str]:
    """All pieces in a fixed order without repetition; single characters are left to the byte alphabet."""
    pieces: list[str] = [str(number) for number in range(100)]
    pieces += [*TOOLS, *KEYS, *REPOSITORIES, *FUNCTION_NAMES, *WORDS, *PLACEHOLDER_NAMES, *PLACEHOLDER_WORDS]
    for names in PARAMETER_NAMES.values():
        pieces += names
    for recipe in FAMILIES:
        for template in (recipe.doc, recipe.vague_doc or "", recipe.code):
            pieces += literals(template)
    for clause in CLAUSES:
        for template in (clause.first_doc, clause.second_doc, clause.first_code, clause.second_code):
            pieces += literals(template)
    pieces += BOILERPLATE
    return [piece for piece in dict.fromkeys(pieces) if len(piece) > 1]
