"""Perplexity per subword (Table 3's "PPL (dev)")."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from transformer.data.pipeline import Batch
from transformer.training.step import EvalStep


class Perplexity(NamedTuple):
    """Unsmoothed negative log-likelihood in nats per subword, EOS counted."""

    nll: float
    num_tokens: int

    @property
    def perplexity(self) -> float:
        """exp(nll); infinite where that overflows."""
        try:
            return math.exp(self.nll)
        except OverflowError:
            return math.inf


def perplexity(
    eval_step: EvalStep, params: dict[str, Any], batches: Iterable[Batch]
) -> Perplexity:
    """The total over all batches divided by the total of tokens, once."""
    sums = [eval_step(params, batch) for batch in batches]
    nll = float(np.sum([np.float64(s.nll_sum) for s in sums]))
    num_tokens = int(np.sum([np.float64(s.num_tokens) for s in sums]))
    return Perplexity(nll / num_tokens, num_tokens)
