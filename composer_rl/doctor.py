"""`composer-rl doctor`: what this machine has, in a page that can be pasted into a bug report."""

from __future__ import annotations

import importlib
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

import composer_rl
from composer_rl.config.paths import checkout_dir, conf_dir
from composer_rl.config.record import git_state
from composer_rl.errors import ComposerError
from composer_rl.runtime import available_cores

_PACKAGES = ("torch", "transformers", "trl", "accelerate", "datasets", "hydra-core", "omegaconf")
_OPTIONAL = (("peft", "lora"), ("wandb", "wandb"), ("tensorboard", "tensorboard"), ("trackio", "trackio"))


def examine() -> int:
    """Print the page; return 1 when something that every run needs is missing or broken, else 0."""
    from rich.console import Console
    from rich.table import Table

    rows = [*_python_rows(), *_package_rows(), *_machine_rows(), _torch_row(), _sandbox_row()]
    table = Table(box=None, show_header=False, pad_edge=False)
    for good, name, text in rows:
        mark = {True: "ok", False: "[red]missing[/red]", None: ""}[good]
        table.add_row(mark, name, text)
    Console(highlight=False, soft_wrap=True).print(table)
    return 1 if any(good is False for good, _, _ in rows) else 0


_Row = tuple[bool | None, str, str]
"""Good (None: neither good nor bad), name, finding."""


def _python_rows() -> list[_Row]:
    supported = sys.version_info >= (3, 11)
    checkout = checkout_dir()
    where = f"checkout {checkout}" if checkout is not None else f"installed in {Path(composer_rl.__file__).parent}"
    revision, dirty = git_state()
    if revision is not None:
        where += f", revision {revision[:12]}" + (" with uncommitted changes" if dirty else "")
    return [
        (True, "composer_rl", f"{composer_rl.__version__}, {where}"),
        (True, "conf", str(conf_dir())),
        (supported, "python", f"{platform.python_version()} ({sys.executable})"),
    ]


def _package_rows() -> list[_Row]:
    rows: list[_Row] = []
    for name in _PACKAGES:
        version = _version(name)
        rows.append((version is not None, name, version or "not installed"))
    for name, extra in _OPTIONAL:
        version = _version(name)
        rows.append((None, name, version or f"not installed (pip install 'composer-rl[{extra}]')"))
    return rows


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _machine_rows() -> list[_Row]:
    memory = _memory_gib()
    return [
        (None, "system", f"{platform.system()} {platform.machine()}"),
        (None, "cores", f"{available_cores()} of {os.cpu_count()}"),
        (None, "memory", "unknown" if memory is None else f"{memory:.1f} GiB"),
    ]


def _memory_gib() -> float | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (ValueError, OSError, AttributeError):
        return None


def _torch_row() -> _Row:
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        return False, "cuda", f"torch cannot be imported: {error}"
    if not torch.cuda.is_available():
        return None, "cuda", "no GPU that torch can use; runs go to the CPU"
    names = ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    return True, "cuda", f"{torch.version.cuda}: {names}"


def _sandbox_row() -> _Row:
    """Open the default sandbox and run one line in it: the only answer that counts."""
    from composer_rl.config.build import build
    from composer_rl.sandboxes.base import Call, EvaluationJob

    try:
        from omegaconf import OmegaConf

        config = OmegaConf.to_container(OmegaConf.load(conf_dir() / "sandbox" / "auto.yaml"), resolve=True)
        assert isinstance(config, dict)
        sandbox = build({str(key): value for key, value in config.items()}, path="sandbox")
        with sandbox:
            job = EvaluationJob(source="def two():\n    return 1 + 1\n", calls=(Call(function="two"),))
            (evaluation,) = sandbox.evaluate([job])
            isolation = getattr(sandbox, "in_force", "")
    except (ComposerError, OSError) as error:
        return False, "sandbox", str(error)
    works = bool(evaluation.outcomes) and evaluation.outcomes[0].value == 2
    text = "runs code" if works else f"did not run a test program ({evaluation.status})"
    return works, "sandbox", text + (f", {isolation}" if isolation else "")
