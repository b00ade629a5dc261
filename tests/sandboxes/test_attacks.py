"""Every hostile module of attacks.py, in every isolation mode that this machine offers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from composer_rl.errors import SandboxError
from composer_rl.sandboxes.base import Evaluation
from composer_rl.sandboxes.process import ProcessSandbox
from tests.sandboxes import attacks
from tests.sandboxes.helpers import REPOSITORY, descendants, ordinary_user, passes, running

_OUTSIDE = ("/", "/etc", "/usr", "/var/tmp", "/dev/shm", "/tmp", "/home")


@pytest.fixture(scope="module", params=["namespaces", "setuid" if os.geteuid() == 0 else "landlock"])
def attacked(request: pytest.FixtureRequest, loopback_port: int) -> dict[str, Evaluation]:
    """All attacks in one batch; afterwards the same workers must be healthy, and nothing may be left."""
    sandbox = ProcessSandbox(isolation=request.param, num_workers=4, limits=attacks.LIMITS)
    try:
        sandbox.open()
    except SandboxError as error:
        pytest.skip(f"{request.param} is not offered here: {error}")
    with sandbox:
        workers = [worker.pid for worker in sandbox._workers]
        evaluations = sandbox.evaluate(attacks.jobs(loopback_port))
        assert [worker.pid for worker in sandbox._workers] == workers, "an attack cost a template its life"
        assert passes(sandbox), "good code fails after the attacks"
        pids = set().union(*(descendants(worker) for worker in workers))
        assert len(pids) <= 2 * len(workers), "an attack left a process behind"
    assert not running(pids), "a process outlives close()"
    return {attack.name: evaluation for attack, evaluation in zip(attacks.ATTACKS, evaluations, strict=True)}


@pytest.mark.parametrize("attack", attacks.ATTACKS, ids=lambda attack: attack.name)
def test_attack_earns_nothing(attacked: dict[str, Evaluation], attack: attacks.Attack) -> None:
    """Tries to pass `f(0) == 17` or to reach beyond the child; gets at most what the table allows."""
    assert attacks.judge(attack, attacked[attack.name]) is None


def test_attacks_leave_no_file(attacked: dict[str, Evaluation]) -> None:
    """Tries to find a file that the attacks wrote outside of their scratch folders, or such a folder."""
    for folder in map(Path, _OUTSIDE):
        if folder.is_dir():
            assert not (folder / "composer-rl-escape").exists()


def test_endless_output_keeps_head_and_tail(attacked: dict[str, Evaluation]) -> None:
    """Tries to print for ever (B113): the first and the last bytes are kept, within the limit."""
    output = attacked["print for ever (B113)"].output
    assert output.startswith("head\n")
    assert "bytes left out" in output
    assert output.rstrip("\n").endswith("x")
    assert len(output) < attacks.LIMITS.output_bytes + 100


@pytest.mark.parametrize("mode", ["namespaces", "landlock"])
def test_attacks_under_an_ordinary_user(mode: str, loopback_port: int) -> None:
    """Tries all of it against the modes of a user who is not root, when the tests run as root."""
    if os.geteuid() != 0:
        pytest.skip("the tests run as an ordinary user already")
    python, settings = ordinary_user()
    script = str(REPOSITORY / "tests" / "sandboxes" / "attacks.py")
    result = subprocess.run(
        [python, script, mode, str(loopback_port)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **settings,
    )
    if "cannot isolate model-written code" in result.stderr:
        pytest.skip(f"{mode} is not offered to an ordinary user here: {result.stderr[-300:]}")
    assert result.returncode == 0, result.stderr[-2000:]
    report = json.loads(result.stdout)
    assert report["problems"] == {}
    assert report["gold"] == attacks.EXPECTED
