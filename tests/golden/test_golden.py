"""Our losses against vectors that the public reference code produced.

The vectors live beside the repository; COMPOSER_RL_GOLDEN names their folder, as `.ci/run` sets it.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from composer_rl.ops.entropy_aware_opd import entropy_aware_opd_loss, teacher_entropy
from composer_rl.ops.generalized_jsd import generalized_jsd_loss
from composer_rl.ops.preferences import dpo_loss, simpo_loss
from composer_rl.ops.taid import TAIDScheduler, taid_loss

FOLDER = os.environ.get("COMPOSER_RL_GOLDEN")

pytestmark = pytest.mark.skipif(FOLDER is None, reason="COMPOSER_RL_GOLDEN names no folder of golden vectors")

RELATIVE = {torch.float64: 1e-9, torch.float32: 1e-5}
"""Allowed relative error, by the dtype of the vector."""
ABSOLUTE_WHERE_ZERO = 1e-7
"""Allowed norm of the gradient where the true one is 0."""


def cases_of(kind: str) -> list[Any]:
    """Test parameters: every case of a kind, none where there is no folder."""
    if FOLDER is None:
        return []
    cases = json.loads((Path(FOLDER) / "golden.json").read_text())
    return [pytest.param(case, id=case["id"]) for case in cases if case["kind"] == kind]


@cache
def all_tensors() -> dict[str, torch.Tensor]:
    return load_file(Path(str(FOLDER)) / "golden.safetensors")


def tensor_of(case: dict[str, Any], name: str) -> torch.Tensor:
    return all_tensors()[f"{case['id']}.{name}"].clone()


def check(case: dict[str, Any], loss: torch.Tensor, student: torch.Tensor) -> None:
    """Compare a scalar loss and, where the vector has one, its gradient."""
    limit = RELATIVE[student.dtype]
    assert loss.dtype == student.dtype
    assert loss.item() == pytest.approx(case["expected"], rel=limit, abs=0)
    if f"{case['id']}.grad" not in all_tensors():
        return
    loss.backward()
    expected = tensor_of(case, "grad")
    assert student.grad is not None
    error, size = (student.grad - expected).norm().item(), expected.norm().item()
    assert error <= limit * size or error <= ABSOLUTE_WHERE_ZERO * (case["kind"] == "taid_loss" and case["t"] == 0)


@pytest.mark.parametrize("case", cases_of("generalized_jsd"))
def test_generalized_jsd(case: dict[str, Any]) -> None:
    student = tensor_of(case, "student").requires_grad_()
    settings = {name: case[name] for name in ("beta", "temperature", "top_k", "reduction")}
    check(
        case, generalized_jsd_loss(student, tensor_of(case, "teacher"), tensor_of(case, "labels"), **settings), student
    )


@pytest.mark.parametrize("case", cases_of("taid_loss"))
def test_taid_loss(case: dict[str, Any]) -> None:
    student = tensor_of(case, "student").requires_grad_()
    check(case, taid_loss(student, tensor_of(case, "teacher"), tensor_of(case, "mask"), t=case["t"]), student)


@pytest.mark.parametrize("case", cases_of("taid_schedule"))
def test_taid_schedule(case: dict[str, Any]) -> None:
    settings = {name: case[name] for name in ("alpha", "beta", "disable_adaptive")}
    scheduler = TAIDScheduler(case["num_train_steps"], **settings)
    for step, (loss, (t, delta)) in enumerate(zip(case["losses"], case["expected_t_delta"], strict=True)):
        got = scheduler.update_t(torch.tensor(loss), global_step=step)
        assert (got is None) == (delta is None)
        assert scheduler.t == pytest.approx(t, rel=1e-6, abs=0)
        assert got is None or got.item() == pytest.approx(delta, rel=1e-5, abs=0)


@pytest.mark.parametrize("case", cases_of("entropy_aware_opd_per_token"))
def test_entropy_aware_opd(case: dict[str, Any]) -> None:
    student, teacher, mask = (tensor_of(case, name) for name in ("student", "teacher", "mask"))
    per_token = entropy_aware_opd_loss(
        student, teacher, labels=mask, h_max=case["h_max"], temperature=case["temperature"], reduction="none"
    )
    limit = RELATIVE[student.dtype]
    torch.testing.assert_close(per_token, tensor_of(case, "per_token"), rtol=limit, atol=0)
    entropy = teacher_entropy(teacher / case["temperature"])
    torch.testing.assert_close(entropy, tensor_of(case, "entropy"), rtol=limit, atol=0)


@pytest.mark.parametrize("case", cases_of("simpo"))
def test_simpo(case: dict[str, Any]) -> None:
    chosen, rejected = tensor_of(case, "chosen").requires_grad_(), tensor_of(case, "rejected")
    check(case, simpo_loss(chosen, rejected, beta=case["beta"], gamma=case["gamma"]), chosen)


@pytest.mark.parametrize("case", cases_of("dpo"))
def test_dpo(case: dict[str, Any]) -> None:
    chosen, *others = (tensor_of(case, name) for name in ("chosen", "rejected", "ref_chosen", "ref_rejected"))
    check(case, dpo_loss(chosen.requires_grad_(), *others, beta=case["beta"]), chosen)
