"""Check a run, or every job of a sweep, before Hydra makes a folder or starts the first job.

Hydra turns exceptions of callbacks into warnings, so a refusal leaves as a SystemExit that carries the reason.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from composer_rl.config.one_option import check_one_option
from composer_rl.config.rundir import check_available, make
from composer_rl.errors import ConfigError
from composer_rl.run import prepare_run
from composer_rl.sweeps.design import design_rows

_BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
_DESIGN_SWEEPER = "hydra_plugins.composer_rl_sweeps.design.DesignSweeper"
_OPTUNA_SWEEPER = "hydra_plugins.composer_rl_sweeps.optuna.OptunaSweeper"
_PROCESS_LAUNCHER = "hydra_plugins.composer_rl_sweeps.processes.ProcessLauncher"


class Refused(SystemExit):
    """The configuration is wrong; `reason` is the error to report."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(2)
        self.reason = reason


class Preflight(Callback):
    """The callback that conf/config.yaml names."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check a single run."""
        try:
            _check_options(config, None, RunMode.RUN)
            run_dir = Path(str(OmegaConf.select(config, "hydra.run.dir"))).absolute()
            prepared = prepare_run(task_config(config, run_dir), groups=known_groups())
            check_available(run_dir, resume=prepared.settings.resume)
            make(run_dir)
        except Exception as error:
            raise Refused(error) from error

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check every job of a sweep whose jobs are known beforehand."""
        try:
            check_parallelism(config)
            _check_launcher_settings(config)
            sweep_dir = Path(str(config.hydra.sweep.dir)).absolute()
            groups = known_groups()
            # Jobs in processes of their own are told apart by their configuration, and run once.
            keeps_folders = config.hydra.launcher.get("_target_") == _PROCESS_LAUNCHER
            for job in _sweep_jobs(config):
                _check_launcher(config, job)
                _check_sweep_file(config, job)
                run_dir = sweep_dir / str(OmegaConf.select(job, "hydra.sweep.subdir"))
                prepared = prepare_run(task_config(job, run_dir), groups=groups)
                if not prepared.settings.resume and not keeps_folders:
                    check_available(run_dir, resume=False, setting="run_name or hydra.sweep.dir")
            make(sweep_dir)
        except Exception as error:
            raise Refused(error) from error


def _check_options(config: DictConfig, overrides: Sequence[str] | None, mode: RunMode) -> None:
    """Refuse several options of one group; the composed configuration no longer shows them.

    `overrides` are those of a job of a sweep; None takes the command line's.
    """
    loader = GlobalHydra.instance().config_loader()
    assert loader is not None
    # Unresolved: an override may hold an interpolation, which is none of the list's.
    given: Any = OmegaConf.to_container(config.hydra.overrides, resolve=False)
    words = [*given["hydra"], *(given["task"] if overrides is None else overrides)]
    check_one_option(loader.compute_defaults_list(str(config.hydra.job.config_name), words, mode).defaults)


def known_groups() -> list[str]:
    """Config groups on Hydra's search path, the user's own included."""
    loader = GlobalHydra.instance().config_loader()
    assert loader is not None
    return [group for group in loader.list_groups("") if group != "hydra"]


def task_config(config: DictConfig, run_dir: Path) -> DictConfig:
    """What the task function will be given: the configuration without Hydra's part, `${hydra:...}` working."""
    full = copy.deepcopy(config)
    with read_write(full.hydra), open_dict(full.hydra):
        full.hydra.runtime.output_dir = str(run_dir)
    HydraConfig.instance().set_config(full)
    task = copy.deepcopy(full)
    with read_write(task), open_dict(task):
        del task["hydra"]
    return task


def _sweep_jobs(config: DictConfig) -> Iterator[DictConfig]:
    """The composed configuration of each job, as far as the sweeper knows its jobs beforehand; a search's corners."""
    loader = GlobalHydra.instance().config_loader()
    assert loader is not None
    sweeper, arguments = config.hydra.sweeper.get("_target_"), list(config.hydra.overrides.task)
    rows: list[list[str]] = []
    if sweeper in (_BASIC_SWEEPER, _DESIGN_SWEEPER):
        rows = design_rows(config.hydra.sweeper, arguments, loader)
    elif sweeper == _OPTUNA_SWEEPER:
        from composer_rl.sweeps.from_config import search_corners

        rows = search_corners(config, arguments, loader)
    for number, job in enumerate(rows):
        _check_options(config, list(job), RunMode.MULTIRUN)
        composed = loader.load_sweep_config(config, list(job))
        with open_dict(composed):
            composed.hydra.job.id = str(number)
            composed.hydra.job.num = number
        yield composed


def _check_launcher(sweep: DictConfig, job: DictConfig) -> None:
    """Refuse a launcher or sweeper chosen inside a swept file: Hydra has already picked them and would ignore it."""
    for group in ("hydra/launcher", "hydra/sweeper"):
        chosen, asked = (config.hydra.runtime.choices.get(group) for config in (sweep, job))
        if chosen != asked:
            raise ConfigError(
                f"{group}={asked} is set in a file that is swept over, where it has no effect; "
                f"choose it on the command line instead"
            )


def _check_launcher_settings(config: DictConfig) -> None:
    """Read the settings of our launcher before Hydra does, which would wrap what is wrong with them."""
    if config.hydra.launcher.get("_target_") == _PROCESS_LAUNCHER:
        from composer_rl.sweeps.launch import ProcessSettings

        launcher: Any = OmegaConf.to_container(config.hydra.launcher, resolve=True)
        ProcessSettings.of(launcher)


def _check_sweep_file(sweep: DictConfig, job: DictConfig) -> None:
    """Refuse several sweep files at once: which jobs there are is read before one of them is chosen."""
    chosen, asked = (config.hydra.runtime.choices.get("multirun_sweeps") for config in (sweep, job))
    if chosen != asked:
        raise ConfigError(f"multirun_sweeps={asked} is one of several: a command runs one sweep file")


def check_parallelism(config: DictConfig) -> None:
    """Refuse a sweep whose sweeper and launcher both run several jobs at once: memory would be used twice over."""
    several = {
        name: section.get("n_jobs")
        for name, section in (("sweeper", config.hydra.sweeper), ("launcher", config.hydra.launcher))
        if section is not None and section.get("n_jobs") not in (None, 1)
    }
    if len(several) == 2:
        raise ConfigError(
            f"hydra.sweeper.n_jobs={several['sweeper']} and hydra.launcher.n_jobs={several['launcher']} multiply; "
            f"set one of them to 1"
        )
