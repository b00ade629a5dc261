"""Error sites: collected from rollouts, frozen, read back and replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from composer_rl.envs.error_sites import (
    MICRO_SITES,
    ErrorSite,
    collect,
    read_sites,
    replay,
    write_sites,
)
from composer_rl.envs.micro import MicroEnvironment
from composer_rl.errors import ConfigError
from composer_rl.types import ERROR_KINDS, Rollout, RolloutTurn, ToolError
from tests.sandboxes.helpers import open_or_skip


@pytest.fixture(scope="module")
def env() -> Iterator[MicroEnvironment]:
    sandbox = open_or_skip(num_workers=1)
    environment = MicroEnvironment(num_train=1, num_heldout=10)
    environment.open(sandbox)
    yield environment
    sandbox.close()


def failed(text: str, kind: str) -> RolloutTurn:
    return RolloutTurn(start=0, end=1, text=text, reward=0.0, error=ToolError(kind=kind, message="m"))


def rollout(task_id: str, *turns: RolloutTurn) -> Rollout:
    return Rollout(
        task_id=task_id,
        prompt_ids=[],
        completion_ids=[],
        logprobs=[],
        env_mask=[],
        turns=list(turns),
        reward=turns[-1].reward,
        stop_reason="max_turns",
    )


def test_first_errors_and_repeated_ones_are_collected(env: MicroEnvironment) -> None:
    task = env.tasks("heldout")[0]
    solved = RolloutTurn(start=0, end=1, text="good", reward=1.0)
    rollouts = [
        rollout(task.task_id, failed("x", "json_decode"), solved),
        rollout(task.task_id, failed("y", "json_decode"), failed("y", "repeated_failure"), solved),
        rollout(task.task_id, failed("z", "type_error"), failed("w", "json_decode"), solved),
        rollout(task.task_id, failed("last", "type_error")),
        rollout(task.task_id, solved),
    ]
    sites = collect(rollouts, [task])
    assert [(site.answers, site.kind) for site in sites] == [
        (("x",), "json_decode"),
        (("y",), "json_decode"),
        (("y", "y"), "repeated_failure"),
        (("z",), "type_error"),
    ]


@pytest.mark.parametrize("name", ["sites.jsonl", "sites.jsonl.gz"])
def test_a_file_reads_back_and_is_the_same_bytes_each_time(name: str, env: MicroEnvironment, tmp_path: Path) -> None:
    sites = [ErrorSite(task=task, answers=("é", "b"), kind="json_decode") for task in env.tasks("heldout")[:3]]
    path = tmp_path / name
    write_sites(path, sites)
    first = path.read_bytes()
    assert read_sites(path) == sites
    write_sites(path, sites)
    assert path.read_bytes() == first


@pytest.mark.parametrize("content", [b"", b"{}\n", b"not json\n", b"\xff\xfe"])
def test_a_broken_file_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.jsonl"):
        read_sites(path)


def test_replaying_gives_the_conversation_and_an_episode_to_fork(env: MicroEnvironment) -> None:
    task = env.tasks("heldout")[0]
    site = ErrorSite(task=task, answers=("{", "{"), kind="repeated_failure")
    (replayed,) = replay(env, [site])
    assert [message["role"] for message in replayed.messages] == ["system", "user", *["assistant", "tool"] * 2]
    assert replayed.error.kind == "repeated_failure"
    for _ in range(2):
        (result,) = env.step([replayed.fork()], [env.gold_action(task)])
        assert result.reward == 1.0
    assert replayed.episode.num_turns == 2


def test_sites_that_do_not_fit_are_refused(env: MicroEnvironment) -> None:
    task = env.tasks("heldout")[0]
    with pytest.raises(ConfigError, match="expected type_error, the replay gave json_decode"):
        replay(env, [ErrorSite(task=task, answers=("{",), kind="type_error")])
    with pytest.raises(ConfigError, match="end the episode"):
        replay(env, [ErrorSite(task=task, answers=(env.gold_action(task),), kind="type_error")])


def test_the_shipped_sites_are_many_held_out_and_of_every_kind(env: MicroEnvironment) -> None:
    sites = read_sites(MICRO_SITES)
    assert len(sites) >= 300
    kinds = Counter(site.kind for site in sites)
    assert set(kinds) == set(ERROR_KINDS)
    assert min(kinds.values()) >= 15
    train = {task.task_id for task in MicroEnvironment(num_train=2000).tasks("train")}
    assert not train & {site.task.task_id for site in sites}
    replayed = replay(env, sites[:40])
    assert [item.error.kind for item in replayed] == [site.kind for site in sites[:40]]


def test_a_site_is_frozen(env: MicroEnvironment) -> None:
    site = ErrorSite(task=env.tasks("heldout")[0], answers=("a",), kind="json_decode")
    assert ErrorSite.from_json(site.to_json()) == site
    assert replace(site, kind="type_error") != site
