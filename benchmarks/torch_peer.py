"""The peer of train_speed.py: torch.nn.Transformer, trained the way it is meant to be.

Rows are sentences of similar length, padded to the longest; fused Adam.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from transformer.data import Corpus, Vocabulary


class Peer(nn.Module):
    """torch.nn.Transformer with one table and sinusoids; post-norm."""

    def __init__(self, size: dict[str, int], num_pieces: int):
        """A model of `size` for so many pieces, of sentences of up to 64."""
        super().__init__()
        d = size["d_model"]
        self.table = nn.Embedding(num_pieces, d)
        nn.init.normal_(self.table.weight, std=d**-0.5)
        self.body = nn.Transformer(
            d,
            size["num_heads"],
            size["num_layers"],
            size["num_layers"],
            size["d_ff"],
            dropout=0.1,
            batch_first=True,
        )
        angles = torch.arange(64)[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
        waves = torch.stack([angles.sin(), angles.cos()], -1).reshape(64, d)
        self.register_buffer("waves", waves)
        self.dropout = nn.Dropout(0.1)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """What the layers see of pieces."""
        scaled = self.table(ids) * self.table.embedding_dim**0.5
        return self.dropout(scaled + self.waves[: ids.shape[1]])

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Logits of the piece that follows each of `target`."""
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        padding = source == 0
        hidden = self.body(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return hidden @ self.table.weight.T


def sorted_batches(
    corpus: Corpus, slots: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of similar lengths, padded, about `slots` target slots each."""
    rng = np.random.default_rng(0)
    lengths = np.maximum(corpus.source_lengths, corpus.target_lengths)
    order = np.lexsort((rng.random(len(corpus)), lengths))
    groups: list[list[int]] = [[]]
    for pair in order.tolist():
        if (len(groups[-1]) + 1) * int(lengths[pair]) > slots:
            groups.append([])
        groups[-1].append(pair)
    while True:
        for index in rng.permutation(len(groups)):
            pairs = [corpus.pair(i) for i in groups[index]]
            yield _padded([s for s, _ in pairs]), _padded([t for _, t in pairs])


def _padded(sentences: list[np.ndarray]) -> np.ndarray:
    """Sentences as rows; 0 is padding, as in our vocabularies."""
    array = np.zeros((len(sentences), max(map(len, sentences))), np.int64)
    for row, sentence in zip(array, sentences, strict=True):
        row[: len(sentence)] = sentence
    return array


def peer(
    size: dict[str, int],
    dtype: str,
    compiled: bool,
    corpus: Corpus,
    vocabulary: Vocabulary,
    slots: int,
) -> Callable[[], int]:
    """A function that makes one update and returns its number of target tokens."""
    torch.set_num_threads(os.cpu_count() or 1)
    network: Any = Peer(size, len(vocabulary))
    optimizer = torch.optim.Adam(
        network.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
    )
    if compiled:
        network = torch.compile(network, dynamic=True)
    loss_of = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)
    batches = sorted_batches(corpus, slots)

    def update() -> int:
        source, target = map(torch.from_numpy, next(batches))
        inputs = torch.roll(target, 1, 1)
        inputs[:, 0] = vocabulary.bos_id
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            logits = network(source, inputs)
        loss = loss_of(logits.float().flatten(0, 1), target.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return int((target != 0).sum())

    return update
