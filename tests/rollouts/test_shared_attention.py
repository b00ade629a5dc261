"""Shared-prefix attention against plain attention over each row's own copy of the prompt."""

from __future__ import annotations

import pytest
import torch

from composer_rl.rollouts import shared_attention as module
from composer_rl.rollouts.completion_cache import CompletionCache, RowLayout
from composer_rl.rollouts.shared_attention import additive_mask, shared_attention


@pytest.mark.parametrize("limit", [2**25, 200])
@pytest.mark.parametrize("num_kv", [1, 2, 4])
@pytest.mark.parametrize("masked", [False, True])
def test_equals_plain_attention(monkeypatch: pytest.MonkeyPatch, limit: int, num_kv: int, masked: bool) -> None:
    monkeypatch.setattr(module, "SCORE_ELEMENTS", limit)
    torch.manual_seed(0)
    groups, per_group, num_queries, heads, size, prompt, own = 3, 2, 5, 4, 6, 7, 8
    rows = groups * per_group
    queries = torch.randn(rows, num_queries, heads, size)
    prefix = torch.randn(2, num_kv, groups, prompt, size)
    suffix = torch.randn(2, num_kv, rows, own, size)
    prompt_valid = torch.ones(groups, prompt, dtype=torch.bool)
    own_valid = torch.ones(rows, num_queries, own, dtype=torch.bool)
    if masked:
        prompt_valid[1, 4:] = False
        own_valid = torch.rand(rows, num_queries, own) > 0.4
    found = shared_attention(
        queries,
        prefix,
        suffix,
        prefix_mask=additive_mask(prompt_valid, torch.float32).repeat(num_kv, 1)[:, None] if masked else None,
        suffix_mask=additive_mask(own_valid, torch.float32).repeat(num_kv, 1, 1) if masked else torch.zeros(1, 1, own),
        scaling=0.3,
    )
    both = torch.cat((prefix.repeat_interleave(per_group, 2), suffix), dim=3)
    both = both.repeat_interleave(heads // num_kv, 1).transpose(1, 2)
    valid = torch.cat((prompt_valid.repeat_interleave(per_group, 0)[:, None].expand(-1, num_queries, -1), own_valid), 2)
    expected = torch.nn.functional.scaled_dot_product_attention(
        queries.transpose(1, 2), both[0], both[1], attn_mask=valid[:, None], scale=0.3
    )
    torch.testing.assert_close(found, expected.transpose(1, 2).flatten(2), rtol=1e-5, atol=1e-5)


def test_layout_pads_uneven_groups() -> None:
    layout = RowLayout([4, 4, 7, 9, 9], [4, 7, 9], torch.device("cpu"))
    assert not layout.dense
    assert layout.slots.tolist() == [0, 1, 2, 4, 5]
    rows = torch.arange(1, 6).unsqueeze(1)
    assert layout.scatter(rows).flatten().tolist() == [1, 2, 3, 0, 4, 5]
    assert torch.equal(layout.gather(layout.scatter(rows)), rows)
    assert layout.sources(torch.tensor([10, 11, 12, 13, 14])).tolist() == [10, 11, 12, 10, 13, 14]
    even = RowLayout([0, 0, 1, 1], [0, 1], torch.device("cpu"))
    assert even.dense
    assert even.scatter(rows) is rows


def seen(mask: torch.Tensor) -> list[list[list[int]]]:
    """1 where an additive mask lets a row look, for the columns up to the last one that any row sees."""
    visible = (mask == 0).int()
    return visible[:, :, : int(visible.amax(dim=(0, 1)).nonzero().max()) + 1].tolist()


def test_a_resumed_row_sees_its_own_columns_only() -> None:
    """Two rows of prompt lengths 3 and 5: row 0 stopped after 2 tokens, row 1 after 4; then 2 and 1 new ones."""
    cache = CompletionCache([torch.zeros(2, 2, 1, 1, 3)], [3, 5])
    layout = RowLayout([0, 0], [0], torch.device("cpu"))
    for column in range(3):
        cache.open_next(layout.num_slots)
        cache.blocks[0][:, :, :, column] = column + 1.0
        cache.width += 1
        assert seen(cache.mask) == [[[1] * cache.width]]
        if column == 0:
            cache.park([0], torch.tensor([0]))
            layout = RowLayout([0], [0], torch.device("cpu"))
            cache.select(torch.tensor([1]))
    cache.park([1], layout.slots)
    layout = RowLayout([0, 0], [0], torch.device("cpu"))
    cache.resume([0, 1], [4, 8], layout, 2)
    assert cache.width == 3
    now = cache.open_turn([0, 1], [2, 1], layout)
    assert cache.blocks[0][0, 1, :, :5, 2].tolist() == [[1, 0, 0, 0, 0], [1, 2, 3, 0, 0]]
    later = [[[1, 0, 0, 1, 1]], [[1, 1, 1, 1, 0]]]
    assert seen(cache.mask) == later * 2  # once for each of two heads
    assert seen(now) == [[[1, 0, 0, 1, 0], [1, 0, 0, 1, 1]], [[1, 1, 1, 1, 0], [1, 1, 1, 1, 0]]] * 2
    cache.width += 2
    cache.open_next(layout.num_slots)
    assert seen(cache.mask)[0] == [[1, 0, 0, 1, 1, 1]]
    cache.select(torch.tensor([1, 1]))
    assert seen(cache.mask)[0] == [[1, 1, 1, 1, 0, 1]]


def test_blocks_grow_and_keep_what_they_hold() -> None:
    cache = CompletionCache([torch.zeros(2, 1, 1, 1, 2)], [1])
    for column in range(60):
        cache.open_next(1)
        cache.blocks[0][:, :, :, column] = column
        cache.width += 1
    assert cache.blocks[0][0, 0, 0, :60, 0].tolist() == list(range(60))
    assert seen(cache.mask) == [[[1] * 60]]
    assert cache.mask.shape[2] == cache.blocks[0].shape[3] < 80
