"""DAPO's equation 13 at its corners, against TRL's own function, and the share that it reaches."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_rl.rewards.base import as_trl
from composer_rl.rewards.overlong import SoftOverlongPenalty
from composer_rl.types import Rollout


def test_the_papers_numbers() -> None:
    penalty = SoftOverlongPenalty(max_tokens=20480, cache_tokens=4096).penalty
    assert penalty(0) == 0.0
    assert penalty(16384) == 0.0
    assert penalty(16384 + 1024) == -0.25
    assert penalty(16384 + 2048) == -0.5
    assert penalty(20480) == -1.0
    assert penalty(30000) == -1.0


@given(st.integers(1, 200), st.data())
def test_it_equals_trls_function(max_tokens: int, data: st.DataObject) -> None:
    from trl.rewards import get_soft_overlong_punishment

    cache = data.draw(st.integers(1, max_tokens))
    lengths = data.draw(st.lists(st.integers(0, 2 * max_tokens), min_size=1, max_size=8))
    ids = [[7] * length for length in lengths]
    theirs = get_soft_overlong_punishment(max_completion_len=max_tokens, soft_punish_cache=cache)(completion_ids=ids)
    ours = as_trl(SoftOverlongPenalty(max_tokens=max_tokens, cache_tokens=cache))
    assert ours(prompts=ids, completions=ids, completion_ids=ids) == pytest.approx(theirs)


def test_tool_turns_count_or_not(make_rollout: Callable[..., Rollout]) -> None:
    rollout = make_rollout(0.0, 1.0, tokens=3, tool_tokens=2)  # 8 tokens, 6 of them sampled
    assert SoftOverlongPenalty(max_tokens=8, cache_tokens=4)([rollout]) == [-1.0]
    assert SoftOverlongPenalty(max_tokens=8, cache_tokens=4, count="sampled")([rollout]) == [-0.5]


def test_the_share_of_penalised_completions_is_logged() -> None:
    logged: dict[str, float] = {}
    ids = [[1] * length for length in (2, 5, 7, 9)]
    scores = as_trl(SoftOverlongPenalty(max_tokens=8, cache_tokens=2))(
        prompts=ids, completions=ids, completion_ids=ids, log_metric=logged.__setitem__
    )
    assert scores == [0.0, 0.0, -0.5, -1.0]
    assert logged == {"overlong_penalty/penalized_share": 0.5}


@pytest.mark.parametrize(("max_tokens", "cache_tokens"), [(0, 1), (8, 0), (8, 9)])
def test_sizes_outside_their_range_are_refused(max_tokens: int, cache_tokens: int) -> None:
    with pytest.raises(ValueError, match=r"must be"):
        SoftOverlongPenalty(max_tokens=max_tokens, cache_tokens=cache_tokens)


def test_counting_sampled_tokens_needs_rollouts() -> None:
    reward = as_trl(SoftOverlongPenalty(max_tokens=8, cache_tokens=2, count="sampled"))
    with pytest.raises(ValueError, match="count=sampled needs rollouts"):
        reward(prompts=[0], completions=[0], completion_ids=[[1]])
