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
        prefix_mask=additive_mask(prompt_valid, torch.float32) if masked else None,
        suffix_mask=additive_mask(own_valid, torch.float32) if masked else None,
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


def test_a_resumed_row_sees_its_own_columns_only() -> None:
    """Two rows of prompt lengths 3 and 5: row 0 stopped after 2 tokens, row 1 after 4; then 2 and 1 new ones."""
    template = torch.zeros(2, 1, 1, 1, 2)
    cache = CompletionCache([template], [3, 5])
    layout = RowLayout([0, 0], [0], torch.device("cpu"))
    cache.reserve(4, layout.num_slots, spare=4)
    for column in range(3):
        cache.blocks[0][:, :, :, column] = column + 1.0
        cache.width += 1
        if column == 0:
            cache.park([0], torch.tensor([0]))
            layout = RowLayout([0], [0], torch.device("cpu"))
            cache.select(torch.tensor([1]))
    cache.park([1], layout.slots)
    layout = RowLayout([0, 0], [0], torch.device("cpu"))
    cache.resume([0, 1], [4, 8], layout, 2)
    assert cache.width == 3
    assert cache.blocks[0][0, 0, :, :, 0].tolist() == [[1, 0, 0, 0, 0], [1, 2, 3, 0, 0]]
    now, later = cache.open_columns([0, 1], [2, 1])
    assert later.int().tolist() == [[[1, 0, 0, 1, 1]], [[1, 1, 1, 1, 0]]]
    assert now.int().tolist() == [[[1, 0, 0, 1, 0], [1, 0, 0, 1, 1]], [[1, 1, 1, 1, 0], [1, 1, 1, 1, 0]]]
