"""Device, threads, determinism and seeds of a run.

The environment variables that OpenMP and cuBLAS read must be set before torch is imported, so `prepare` is called
first and `apply` after the checks of the configuration have passed. Both are called again for every job of a sweep,
which may share the process.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import Literal

from composer_rl.errors import ConfigError

_CUBLAS_WORKSPACE = ":4096:8"


@dataclass(kw_only=True)
class Runtime:
    """What the run computes on."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` takes CUDA where torch sees a GPU, else the CPU; `cuda` is an error without one."""
    num_threads: int | None = None
    """Threads of torch's CPU kernels, at least 1; null takes the cores this process may use, at most 16."""
    omp_wait_policy: Literal["PASSIVE", "ACTIVE"] = "PASSIVE"
    """What idle OpenMP threads do: PASSIVE sleeps, ACTIVE spins and starves the sandbox's processes."""
    deterministic: bool = False
    """Use only deterministic kernels; slower on a GPU, and an error for an operation that has none."""
    micro_batch_size: int | None = None
    """Completions per forward pass on one process, at least 1; null forwards a whole minibatch at once. Smaller saves
    memory; the gradient stays the same for every objective but bnpo."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory for about a fifth more time."""

    compact_forward: bool = True
    """Compute a prompt once for all its completions, and completions in batches of similar length. The gradient is
    that of the plain forward up to rounding; false takes TRL's forward (bit for bit TRL, for comparisons)."""

    def __post_init__(self) -> None:
        if self.num_threads is not None and self.num_threads < 1:
            raise ValueError(f"num_threads must be at least 1 or null, got {self.num_threads}")
        if self.micro_batch_size is not None and self.micro_batch_size < 1:
            raise ValueError(f"micro_batch_size must be at least 1 or null, got {self.micro_batch_size}")

    @property
    def threads(self) -> int:
        """The number of threads that is used."""
        return self.num_threads if self.num_threads is not None else min(available_cores(), 16)

    def prepare(self) -> None:
        """Set the environment variables that are only read when torch is first imported."""
        os.environ["OMP_WAIT_POLICY"] = self.omp_wait_policy
        os.environ["OMP_NUM_THREADS"] = str(self.threads)
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        if self.device == "cpu":
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        if self.deterministic:
            os.environ["CUBLAS_WORKSPACE_CONFIG"] = _CUBLAS_WORKSPACE

    def apply(self, seed: int) -> None:
        """Import torch, set its threads and determinism, and seed Python, NumPy and torch.

        Raises ConfigError when `device` is cuda and torch sees no GPU.
        """
        import numpy as np
        import torch

        if self.device == "cuda" and not torch.cuda.is_available():
            raise ConfigError("runtime.device is cuda, but torch sees no GPU; use runtime.device=auto")
        torch.set_num_threads(self.threads)
        torch.use_deterministic_algorithms(self.deterministic)
        torch.backends.cudnn.deterministic = self.deterministic
        torch.backends.cudnn.benchmark = False
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)

    def torch_device(self) -> str:
        """The device name for torch: "cpu" or "cuda"."""
        import torch

        if self.device == "auto":
            return "cuda" if torch.cuda.is_available() else "cpu"
        return self.device


def available_cores() -> int:
    """Cores this process may run on (its affinity where the platform has one)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
