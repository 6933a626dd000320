"""A tiny vocabulary and a random model, and searches with them."""

import functools
from typing import NamedTuple

import jax
import numpy as np

from transformer.config import ModelConfig
from transformer.decoding.pool import Found, Job, Pool
from transformer.decoding.state import Network, Rules, SpecialIds
from transformer.model import initial_variables

IDS = SpecialIds(pad=0, bos=1, eos=2)
VOCAB = 12
LENGTH = 10


class Result(NamedTuple):
    """The best hypothesis of each sentence; tokens are padded to the longest limit."""

    tokens: np.ndarray
    lengths: np.ndarray
    log_probs: np.ndarray
    scores: np.ndarray
    finished: np.ndarray


@functools.cache
def parameters(config: ModelConfig, vocab_size: int = VOCAB) -> dict:
    """A random model with decided opinions: a large output table."""
    params = initial_variables(config, vocab_size, jax.random.key(0))["params"]
    return params | {"output": 3 * params["output"]}


def sentences(
    count: int, width: int, vocab_size: int = VOCAB, seed: int = 0
) -> np.ndarray:
    """Random sources of lengths 1 to `width`, EOS counted, padded to `width`."""
    random = np.random.default_rng(seed)
    source = np.full((count, width), IDS.pad, np.int32)
    for row in range(count):
        length = 1 + row % width
        source[row, : length - 1] = random.integers(3, vocab_size, length - 1)
        source[row, length - 1] = IDS.eos
    return source


def hypotheses(
    config: ModelConfig,
    params: dict,
    source: np.ndarray,
    rules: Rules,
    alpha: float = 0.0,
    limits: np.ndarray | int = LENGTH,
    vocab_size: int = VOCAB,
    slots: int = 4096,
) -> list[list[Found]]:
    """What a pool finds for each source, once for each."""
    limits = np.broadcast_to(limits, len(source))
    jobs = [
        Job(tuple(row[row != IDS.pad].tolist()), int(limit), (), (0, 0))
        for row, limit in zip(source, limits, strict=True)
    ]
    network = Network((config,), vocab_size, IDS)
    listed = list(Pool((params,), network, rules, alpha, slots).run(jobs))
    assert sorted(number for number, _ in listed) == list(range(len(jobs)))
    return [found for _, found in sorted(listed)]


def search(
    config: ModelConfig,
    params: dict,
    source: np.ndarray,
    beam: int,
    alpha: float = 0.0,
    limits: np.ndarray | int = LENGTH,
    slots: int = 4096,
) -> Result:
    """The best hypotheses that a pool finds, as NumPy arrays."""
    listed = hypotheses(config, params, source, Rules(beam), alpha, limits, slots=slots)
    best = [found[0] for found in listed]
    tokens = np.full((len(best), np.max(limits)), IDS.pad, np.int32)
    for row, found in enumerate(best):
        tokens[row, : len(found.tokens)] = found.tokens
    return Result(
        tokens,
        np.array([len(found.tokens) for found in best]),
        np.array([found.log_prob for found in best]),
        np.array([found.score for found in best]),
        np.array([found.finished for found in best]),
    )


def hypothesis(result: Result, row: int) -> tuple[int, ...]:
    """A row's tokens."""
    return tuple(result.tokens[row, : result.lengths[row]].tolist())


def assert_same(result: Result, expected: Result, order: np.ndarray | None = None):
    """The same hypotheses, where `result` has the sentences in another order."""
    order = np.arange(len(result.lengths)) if order is None else order
    np.testing.assert_array_equal(result.tokens, expected.tokens[order])
    np.testing.assert_array_equal(result.finished, expected.finished[order])
    np.testing.assert_allclose(result.scores, expected.scores[order], atol=1e-4)
