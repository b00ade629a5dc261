"""Where conf/ is, and what config groups and options lie in it and in the user's own config folders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import composer_rl
from composer_rl.errors import ConfigError

_PACKAGE_DIR = Path(composer_rl.__file__).resolve().parent
_HEADER = re.compile(r"# (\S.*?)\s*")
_SENTENCE_END = re.compile(r"(?<=[a-z0-9)]{2}\.)\s+(?=[A-Z])")


def conf_dir() -> Path:
    """The folder of shipped configurations: inside an installed wheel, else next to the package in a checkout."""
    for candidate in (_PACKAGE_DIR / "conf", _PACKAGE_DIR.parent / "conf"):
        if (candidate / "config.yaml").is_file():
            return candidate
    raise ConfigError(f"no conf/config.yaml in {_PACKAGE_DIR} or {_PACKAGE_DIR.parent}; reinstall composer-rl")


def checkout_dir() -> Path | None:
    """The git checkout that composer_rl itself runs from, None for an installed wheel."""
    root = _PACKAGE_DIR.parent
    return root if (root / ".git").exists() and (root / "conf").is_dir() else None


def yaml_files(folder: Path) -> Iterator[Path]:
    """Every YAML below `folder` in sorted order, folders behind symlinks included."""
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    for entry in entries:
        if entry.is_dir():
            yield from yaml_files(entry)
        elif entry.suffix == ".yaml":
            yield entry


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a config group: `group=name` selects `file`."""

    group: str
    name: str
    file: Path

    @property
    def description(self) -> str:
        """The first sentence of the comment that the file begins with, "" if there is none."""
        lines: list[str] = []
        for line in self.file.read_text(encoding="utf-8").splitlines():
            if line.startswith("# @package"):
                continue
            match = _HEADER.fullmatch(line)
            if match is None:
                break
            lines.append(match.group(1))
        return _SENTENCE_END.split(" ".join(lines), maxsplit=1)[0].rstrip(".:")


@dataclass(frozen=True)
class Catalog:
    """All config groups and options found in some folders; an earlier folder's option hides a later one's."""

    folders: tuple[Path, ...]

    @cached_property
    def options(self) -> dict[str, dict[str, Option]]:
        """Options by group and name. A file in a nested folder counts for every group above it:
        `loss/channel/kl.yaml` is `loss/channel=kl` and `loss=channel/kl`."""
        found: dict[str, dict[str, Option]] = {}
        for folder in self.folders:
            for file in yaml_files(folder):
                parts = file.relative_to(folder).with_suffix("").parts
                for depth in range(1, len(parts)):
                    group, name = "/".join(parts[:depth]), "/".join(parts[depth:])
                    found.setdefault(group, {}).setdefault(name, Option(group=group, name=name, file=file))
        return found

    def names(self, group: str) -> list[str]:
        """Option names of a group, sorted."""
        return sorted(self.options.get(group, {}))

    def groups_with(self, name: str) -> list[str]:
        """Groups that have an option of this name."""
        return sorted(group for group, options in self.options.items() if name in options)

    @property
    def top_groups(self) -> list[str]:
        """Groups that are a top-level key of the configuration."""
        return sorted({group.partition("/")[0] for group in self.options if group.partition("/")[0] != "hydra"})


def catalog(extra: Iterable[Path] = ()) -> Catalog:
    """The catalog of the user's folders (`--config-dir`) and the shipped conf/."""
    return Catalog((*extra, conf_dir()))
