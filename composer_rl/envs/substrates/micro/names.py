"""Names and word constants of the generated modules; each is one token of the tiny tokenizer."""

from __future__ import annotations

from typing import Literal

ValueKind = Literal["int", "list", "str"]
"""What a generated function takes: an int, a list of ints, or a str."""

FUNCTION_NAMES = (
    "calc",
    "solve",
    "step",
    "shape",
    "blend",
    "route",
    "score",
    "pick",
    "tidy",
    "probe",
    "shift",
    "craft",
)
"""Names of the generated functions."""

PARAMETER_NAMES: dict[ValueKind, tuple[str, ...]] = {
    "int": ("x", "k", "a", "m", "t", "num", "value", "size"),
    "list": ("xs", "ys", "items", "nums", "vals", "data", "row", "bag"),
    "str": ("s", "w", "word", "name", "line", "label", "key", "title"),
}
"""Names of the single parameter by its kind."""

LOOP_NAME = "v"
"""Variable of comprehensions; never a parameter name."""

PLACEHOLDER_NAMES = ("arg", "obj")
"""Names that no parameter has: what a careless body uses for it."""

PLACEHOLDER_NUMBERS = (0, 1)
"""Numbers that are no constant of any recipe: what a careless body uses for one."""

PLACEHOLDER_WORDS = ("foo", "bar")
"""The same for word constants."""

WORDS = (
    "oak", "elm", "ash", "fir", "yew", "ivy", "sun", "sky", "fog", "ice",
    "bay", "cove", "reef", "dune", "hill", "lake", "moor", "peak", "rock", "sand",
    "birch", "cedar", "maple", "pine", "rose", "lily", "fern", "moss", "reed", "vine",
    "rain", "snow", "wind", "frost", "storm", "cloud", "dawn", "dusk", "noon", "tide",
    "wave", "shore", "creek", "marsh", "field", "grove", "glade", "ridge", "cliff", "canyon",
    "ember", "flame", "spark", "smoke", "coal", "iron", "gold", "tin", "zinc", "lead",
)  # fmt: skip
"""Constants and arguments of the str functions."""
