"""`from composer_rl import X` for every public name, with nothing imported before it is touched."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import composer_rl

NAMES = [name for name in composer_rl.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", NAMES)
def test_name_is_served_from_its_module(name: str) -> None:
    home = importlib.import_module(composer_rl._HOMES[name])
    assert getattr(composer_rl, name) is getattr(home, name)


def test_lists_agree() -> None:
    assert set(composer_rl._HOMES) == set(NAMES)
    assert set(NAMES) <= set(dir(composer_rl))
    source = Path(composer_rl.__file__).read_text()
    type_checker_sees = source.partition("if TYPE_CHECKING:")[2].partition("_HOMES")[0]
    assert [name for name in NAMES if name not in type_checker_sees] == []


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = composer_rl.nope
    with pytest.raises(ImportError):
        exec("from composer_rl import nope")


def test_light_names_stay_light() -> None:
    code = "import sys, composer_rl; composer_rl.PO_OBJECTIVES; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(composer_rl.__file__).parents[1])
