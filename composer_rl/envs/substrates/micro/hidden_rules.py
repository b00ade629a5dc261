"""The rules a policy has to learn, because no prompt states them: repository -> tool -> argument key.

Every system prompt lists all tools; which one works in a repository, and under which argument key it takes the
code, only the error, the hint or experience tells. In the two NEW_REPOSITORIES the floor's corpus guesses the tool at
random and never tells which guess is right, so reinforcement learning has to find it out.
"""

from __future__ import annotations

TOOLS = ("write", "put", "swap_in", "edit", "save", "fill", "patch", "insert")
"""Tool names, in the order in which the system prompt lists them."""

KEYS = ("code", "text", "body", "source")
"""Argument keys under which a tool may take the new function body."""

FUNCTION_KEY = "function"
"""Argument key of the function's name, the same for every tool."""

TOOL_OF = {
    "fig": "swap_in",
    "plum": "write",
    "kiwi": "insert",
    "lime": "save",
    "pear": "put",
    "date": "patch",
    "olive": "fill",
    "mango": "edit",
}
"""The one tool that exists in a repository."""

KEY_OF = {
    "write": "text",
    "put": "code",
    "swap_in": "source",
    "edit": "text",
    "save": "body",
    "fill": "source",
    "patch": "code",
    "insert": "body",
}
"""The argument key under which a tool takes the code."""

REPOSITORIES = tuple(TOOL_OF)
"""All repositories, known ones first."""

NEW_REPOSITORIES = ("olive", "mango")
"""Repositories in which the floor is never told the right tool."""

CANDIDATES_OF = {"olive": ("fill", "write", "put", "swap_in"), "mango": ("edit", "save", "patch", "insert")}
"""The tools that the floor's corpus calls at random in a new repository, the right one among them. The two sets are
disjoint: with the same guesses in both, a policy takes the two repositories for one and never leaves the tool that it
happens to find first in either."""

KNOWN_REPOSITORIES = tuple(name for name in REPOSITORIES if name not in NEW_REPOSITORIES)
"""Repositories of the floor's demonstrations."""


def tool_schema(key: str) -> dict[str, object]:
    """JSON schema of a tool's arguments when it takes the code under `key`."""
    return {
        "type": "object",
        "properties": {FUNCTION_KEY: {"type": "string"}, key: {"type": "string"}},
        "required": [FUNCTION_KEY, key],
    }
