"""One option a config group: Hydra would merge the files of `po=[dapo,grpo]` into one component that is neither."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from composer_rl.errors import ConfigError

SEVERAL_OPTIONS = frozenset({"tracker"})
"""Config groups whose options add up."""


def check_one_option(defaults: Iterable[Any]) -> None:
    """Refuse a group of which two options are merged, wherever the list stands: command line, YAML file or sweep.

    `defaults` are the ResultDefaults of Hydra's loader. What an option of the group itself builds upon does not count,
    nor does the same group in another package. Raises ConfigError.
    """
    chosen: dict[tuple[str, str], list[str]] = {}
    for entry in defaults:
        group, _, option = (entry.config_path or "").rpartition("/")
        parent = (entry.parent or "").rpartition("/")[0]
        if not group or group == parent or group.partition("/")[0] in {"hydra", *SEVERAL_OPTIONS}:
            continue
        chosen.setdefault((group, entry.package or ""), []).append(option)
    for (group, package), options in chosen.items():
        if package and len(options) > 1:
            raise ConfigError(
                f"{group} takes one option, got [{','.join(options)}]; to compare them use: "
                f"-m {group}={','.join(options)}"
            )
