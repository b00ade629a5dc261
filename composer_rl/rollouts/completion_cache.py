"""Where the rows of a batch lie, and the keys and values of their own tokens, for the shared-prefix decoder."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from composer_rl.rollouts.shared_attention import additive_mask


class RowLayout:
    """Active rows, sorted by prompt, placed into U groups of G slots each.

    G is the largest number of active rows of one prompt, so that the queries of a group form one dense block against
    the group's shared prefix. When every group has G active rows, slots are rows and nothing is copied.
    """

    def __init__(self, groups: Sequence[int], order: Sequence[int], device: torch.device) -> None:
        """`groups[i]` is the prompt of active row i, ascending; `order` lists the prompts that have slots."""
        place = {group: position for position, group in enumerate(order)}
        counts = dict.fromkeys(order, 0)
        ranks: list[int] = []
        for group in groups:
            ranks.append(counts[group])
            counts[group] += 1
        size = max(counts.values())
        self.num_slots = len(order) * size
        self.slots = torch.tensor(
            [place[group] * size + rank for group, rank in zip(groups, ranks, strict=True)],
            dtype=torch.long,
            device=device,
        )
        """`(A,)`, ascending: the slot of each active row."""
        self.dense = len(ranks) == self.num_slots

    def scatter(self, rows: Tensor) -> Tensor:
        """`(A, ...)` to `(R, ...)`; slots without a row are 0."""
        if self.dense:
            return rows
        return rows.new_zeros((self.num_slots, *rows.shape[1:])).index_copy_(0, self.slots, rows)

    def gather(self, slots: Tensor) -> Tensor:
        """`(R, ...)` to `(A, ...)`."""
        return slots if self.dense else slots.index_select(0, self.slots)

    def sources(self, rows: Tensor) -> Tensor:
        """For each slot the entry of `rows` (`(A,)`) that belongs there; slots without a row take the first."""
        return rows[:1].repeat(self.num_slots).index_copy_(0, self.slots, rows)


class CompletionCache:
    """Keys and values of the rows' own tokens, one block `(2, Hkv, R, capacity, D)` a layer.

    A column belongs to one step of all rows: a row that had stopped, or was given fewer tokens than another, has
    nothing of its own there. `spans` remembers which columns count, and the mask hides the others. Blocks are read
    whole, unused columns included: a CPU streams a block several times faster than its strided part, and small
    products fall off the fast kernel. They therefore grow in small steps.
    """

    def __init__(self, templates: Sequence[Tensor], prompt_lengths: Sequence[int]) -> None:
        """`templates` are `(2, Hkv, ., ., D)` tensors, one a layer; `prompt_lengths` has one entry a row."""
        self._templates = templates
        self._prompt_lengths = prompt_lengths
        self.blocks: list[Tensor] = []
        self.width = 0
        """Columns in use."""
        self.mask = templates[0].new_zeros((1, 1, 0))
        """`(Hkv * R or 1, 1, capacity)`: 0 on the columns that a row's next token sees, -inf on the others."""
        self._turn_start = 0
        self._spans: list[list[tuple[int, int]]] = [[] for _ in prompt_lengths]
        self._parked: list[tuple[dict[int, int], list[Tensor]]] = []

    def open_next(self, num_slots: int) -> None:
        """Let every row use the next column; the caller writes it and adds to `width`."""
        if self.width == self.mask.shape[2]:
            self._grow(num_slots)
        self.mask[:, :, self.width] = 0.0

    def _grow(self, num_slots: int) -> None:
        capacity = _rounded(self.width + 1)
        old, self.blocks = self.blocks, []
        for number, template in enumerate(self._templates):
            shape = (2, template.shape[1], num_slots, capacity, template.shape[4])
            block = template.new_zeros(shape)
            if old:
                block[:, :, :, : self.width] = old[number]
                old[number] = block[:, :, :0]
            self.blocks.append(block)
        hidden = self.mask.new_full((self.mask.shape[0], 1, capacity - self.width), float("-inf"))
        self.mask = torch.cat((self.mask, hidden), dim=2)

    def select(self, source: Tensor) -> None:
        """Let slot i hold what slot `source[i]` held."""
        for number, block in enumerate(self.blocks):
            self.blocks[number] = block.index_select(2, source)
        if self.mask.shape[0] > 1:
            heads = self._templates[0].shape[1]
            by_slot = self.mask.view(heads, -1, self.mask.shape[2]).index_select(1, source)
            self.mask = by_slot.view(-1, 1, self.mask.shape[2])

    def park(self, rows: Sequence[int], slots: Tensor) -> None:
        """Set aside the own tokens of `rows` (at `slots`) until `resume`."""
        if rows and self.blocks:
            chunk = [block[:, :, :, : self.width].index_select(2, slots) for block in self.blocks]
            self._parked.append(({row: i for i, row in enumerate(rows)}, chunk))

    def resume(self, rows: Sequence[int], num_run: Sequence[int], layout: RowLayout, columns: int) -> None:
        """Bring the parked `rows` back with room for `columns` more; every other parked row is forgotten.

        `num_run[i]` is the number of tokens of row i, prompt included, that the model has been run on.
        """
        for row, run in zip(rows, num_run, strict=True):
            spans = self._spans[row]
            sampled = run - self._prompt_lengths[row] - sum(stop - start for start, stop in spans)
            spans.append((self._turn_start, self._turn_start + sampled))
        self.width = max(self._spans[row][-1][1] for row in rows)
        device = layout.slots.device
        moves: list[tuple[Tensor, Tensor]] = []
        for members, _ in self._parked:
            found = [(members[row], i) for i, row in enumerate(rows) if row in members]
            pairs = torch.tensor(found, dtype=torch.long, device=device).view(-1, 2)
            moves.append((pairs[:, 0], layout.slots[pairs[:, 1]]))
        capacity = _rounded(self.width + columns)
        self.blocks = []
        for number, template in enumerate(self._templates):
            block = template.new_zeros((2, template.shape[1], layout.num_slots, capacity, template.shape[4]))
            for (_, chunk), (source, target) in zip(self._parked, moves, strict=True):
                held = chunk[number][:, :, :, : self.width]
                block[:, :, :, : held.shape[3]].index_copy_(2, target, held.index_select(2, source))
                chunk[number] = held[:, :, :0]
            self.blocks.append(block)
        self._parked.clear()

    def open_turn(self, rows: Sequence[int], num_new: Sequence[int], layout: RowLayout) -> Tensor:
        """Give row i `num_new[i]` of the next N = max(num_new) columns; the caller writes them and adds to `width`.

        Sets `mask` for the tokens that follow, and returns that of the N new tokens: `(Hkv * R, N, capacity)`.
        """
        longest, capacity = max(num_new), self.blocks[0].shape[3]
        later = torch.zeros(len(rows), 1, capacity, dtype=torch.bool)
        for i, (row, new) in enumerate(zip(rows, num_new, strict=True)):
            self._spans[row].append((self.width, self.width + new))
            for start, stop in self._spans[row]:
                later[i, 0, start:stop] = True
        causal = torch.ones(longest, capacity, dtype=torch.bool).tril_(self.width)
        self._turn_start = self.width + longest
        self.mask = self._slot_mask(later, layout)
        return self._slot_mask(later & causal, layout)

    def _slot_mask(self, visible: Tensor, layout: RowLayout) -> Tensor:
        slots = layout.scatter(visible.to(layout.slots.device))
        return additive_mask(slots, self._templates[0].dtype).repeat(self._templates[0].shape[1], 1, 1)


def _rounded(columns: int) -> int:
    """Columns to allocate: a multiple of 16, with more spare room the more there are already."""
    return -(-(columns + columns // 8) // 16) * 16
