"""Numbers and dates as a reader wants them."""

from __future__ import annotations

from datetime import datetime


def seconds_in_words(seconds: float) -> str:
    """`4 min 17 s`, `2 h 05 min`, `3.2 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def percent(rate: float | None) -> str:
    """`60.4%`, a dash without a rate."""
    return "–" if rate is None else f"{100 * rate:.1f}%"


def count(number: float) -> str:
    """`3.6 M`, `12.4 k`, `9 876`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if unit == 'k' else size):.3g} {unit}"
    return f"{number:,.0f}".replace(",", " ")


def date(text: str) -> str:
    """`2026-03-02 14:05 UTC`; text that is no ISO date as it is."""
    try:
        return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M %Z").strip()
    except ValueError:
        return text
