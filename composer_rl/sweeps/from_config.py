"""From Hydra's configuration of a sweep to the search that it describes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from composer_rl.sweeps.call import current_call
from composer_rl.sweeps.identity import config_hash
from composer_rl.sweeps.returned import count_outcomes
from composer_rl.sweeps.search import Pace, search
from composer_rl.sweeps.search_space import SearchSettings, corner_rows, with_command_line


class _Counting:
    """A launcher whose jobs are counted for the exit code."""

    def __init__(self, launcher: Any) -> None:
        self._launcher = launcher

    def launch(self, rows: Sequence[Sequence[str]], initial_job_idx: int) -> Any:
        returns = self._launcher.launch(rows, initial_job_idx=initial_job_idx)
        count_outcomes(returns)
        return returns


def search_from_config(launcher: Any, config: Any, arguments: Sequence[str], loader: Any) -> dict[str, Any]:
    """Run the search of `hydra.sweeper` under a command line's overrides; see `search`."""
    from omegaconf import OmegaConf

    from composer_rl.preflight import task_config

    settings, shared = _settings(config, arguments, loader)
    # Under the overrides that all jobs share: what the command line searches has no value before it is drawn.
    composed = task_config(loader.load_sweep_config(config, shared), Path.cwd())
    content: Any = OmegaConf.to_container(composed, resolve=True)
    current_call().keeps_earlier_jobs = True
    return search(
        _Counting(launcher),
        str(config.hydra.sweep.dir),
        shared,
        settings,
        pace=Pace.of(config.hydra.launcher or {}),
        recipe=config_hash(content),
    )


def search_corners(config: Any, arguments: Sequence[str], loader: Any) -> list[list[str]]:
    """Overrides of jobs at the ends of everything that is searched. Raises ConfigError for what cannot be searched."""
    settings, shared = _settings(config, arguments, loader)
    return corner_rows(settings, shared)


def _settings(config: Any, arguments: Sequence[str], loader: Any) -> tuple[SearchSettings, list[str]]:
    from omegaconf import OmegaConf

    sweeper: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=True)
    return with_command_line(SearchSettings.of(sweeper), arguments, loader)
