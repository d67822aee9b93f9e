"""Many conversations in one forward pass: token sequences that begin alike share their beginning.

A system text, a question and its candidate responses are a tree. Its nodes become one row of tokens, each of which attends
to its ancestors only and has its depth as position: so each hidden state is what the model gives for that sequence alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

_ROOT = -1


@dataclass(frozen=True, slots=True)
class PackedRow:
    """Tokens of one tree, parents before children."""

    tokens: list[int]
    parents: list[int]
    ends: list[int]
    """Index of each sequence's last token, in the order of the sequences."""


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """Rows padded to one length, as a model's arguments."""

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    attention_mask: torch.Tensor
    """[rows, 1, length, length], added to the attention logits: 0 where the third axis may look at the fourth, else -1e9."""


def pack_row(sequences: Sequence[Sequence[int]]) -> PackedRow:
    """The tree of these sequences."""
    tokens: list[int] = []
    parents: list[int] = []
    ends: list[int] = []
    children: dict[tuple[int, int], int] = {}
    for sequence in sequences:
        node = _ROOT
        for token in sequence:
            child = children.get((node, token))
            if child is None:
                child = children[node, token] = len(tokens)
                tokens.append(token)
                parents.append(node)
            node = child
        ends.append(node)
    return PackedRow(tokens, parents, ends)


def collate(rows: Sequence[PackedRow], padding: int) -> PackedBatch:
    """One batch; padding is at the right and looks at itself alone."""
    length = max(len(row.tokens) for row in rows)
    input_ids = torch.full((len(rows), length), padding)
    position_ids = torch.zeros((len(rows), length), dtype=torch.long)
    mask = torch.eye(length, dtype=torch.bool).repeat(len(rows), 1, 1)
    for index, row in enumerate(rows):
        input_ids[index, : len(row.tokens)] = torch.tensor(row.tokens)
        depths: list[int] = []
        looks = mask[index].numpy()
        for node, parent in enumerate(row.parents):
            depths.append(0 if parent == _ROOT else depths[parent] + 1)
            if parent != _ROOT:
                looks[node, :node] = looks[parent, :node]
        position_ids[index, : len(depths)] = torch.tensor(depths)
    blocked = torch.zeros(mask.shape).masked_fill(~mask, -1e9)
    return PackedBatch(input_ids, position_ids, blocked.unsqueeze(1))
