"""Nearest-name suggestions for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_CUTOFF = 0.6


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name most similar to `word`, or None when nothing is similar enough."""
    names = [str(name) for name in known]
    matches = difflib.get_close_matches(word, names, n=1, cutoff=_CUTOFF)
    if matches:
        return matches[0]
    folded = {name.lower().replace("-", "_"): name for name in names}
    matches = difflib.get_close_matches(word.lower().replace("-", "_"), list(folded), n=1, cutoff=_CUTOFF)
    if matches:
        return folded[matches[0]]
    longer = [name for name in names if len(word) >= 3 and name.lower().startswith(word.lower())]
    return longer[0] if len(longer) == 1 else None


def did_you_mean(word: str, known: Iterable[str], *, what: str, limit: int = 12) -> str:
    """The tail of an error message: the nearest name, else the known ones.

    `what` names the kind in the plural ("options of po"). Returns "" when nothing is known.
    """
    names = sorted({str(name) for name in known})
    match = nearest(word, names)
    if match is not None:
        return f"; did you mean {match}?"
    if not names:
        return ""
    shown = ", ".join(names[:limit]) + (", ..." if len(names) > limit else "")
    return f"; {what}: {shown}"
