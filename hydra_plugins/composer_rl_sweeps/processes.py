"""`hydra/launcher=processes` (the default): every job of a sweep in a process of its own, resumable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher


class ProcessLauncher(Launcher):
    """See `composer_rl.sweeps.launch.launch_jobs`.

    Args:
        n_jobs: Jobs that run at once, at least 1; the cores are divided among them.
        fail_fast: Stop the sweep at the first failure.
        retry_failed: Run jobs again that failed in an earlier call.
        devices: CUDA devices to hand out in turn; null takes those of the machine where there are several.
    """

    def __init__(self, **settings: Any) -> None:
        from omegaconf import OmegaConf

        from composer_rl.sweeps.launch import ProcessSettings

        plain = OmegaConf.to_container(OmegaConf.create(settings), resolve=True)
        assert isinstance(plain, dict)
        self._settings = ProcessSettings.of({str(name): value for name, value in plain.items()})

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        """Keep what Hydra composes jobs with."""
        self._loader, self._config = hydra_context.config_loader, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run what has to run and return how every job ended."""
        from composer_rl.sweeps.launch import launch_jobs

        return launch_jobs(self._loader, self._config, job_overrides, self._settings)


ConfigStore.instance().store(
    group="hydra/launcher",
    name="processes",
    node={
        "_target_": f"{ProcessLauncher.__module__}.{ProcessLauncher.__name__}",
        "n_jobs": 1,
        "fail_fast": False,
        "retry_failed": False,
        "devices": None,
    },
    provider="composer_rl",
)
