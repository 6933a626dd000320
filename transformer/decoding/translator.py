"""From text to text: the model, its vocabulary and the search in one object."""

import itertools
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer.config import Config, DecodeConfig
from transformer.data.text import is_blank
from transformer.data.vocabulary import Vocabulary
from transformer.decoding.search import SearchResult, SpecialIds, beam_search
from transformer.training import (
    Checkpoints,
    RunFolder,
    initial_state,
    make_mesh,
    replicated,
)

logger = logging.getLogger(__name__)

_WINDOW = 2048  # lines read before the first is translated, to sort them by length
_WIDTHS = (8, 16, 32, 48, 64, 96, 128)  # then multiples of the last
_ROWS = (1, 4, 16, 32, 64, 128)


class Translation(NamedTuple):
    """One line's translation.

    `tokens` are its pieces, with EOS if the hypothesis ended (`finished`); `log_prob`
    is their total in nats, and `score` that divided by the length penalty. A blank line
    has no tokens.
    """

    text: str
    tokens: tuple[int, ...]
    log_prob: float
    score: float
    finished: bool


_BLANK = Translation("", (), 0.0, 0.0, True)


class Translator:
    """Translates lines of text with one set of parameters."""

    def __init__(
        self,
        config: Config,
        vocabulary: Vocabulary,
        params: dict[str, Any],
        decode: DecodeConfig | None = None,
    ):
        """Takes the search's settings from `decode`, or from the configuration."""
        self.config = config
        self.vocabulary = vocabulary
        self.params = jax.device_put(params)
        self.steps: tuple[int, ...] = ()  # of the checkpoints, where it is known
        self.decode = decode or config.decode
        self._ids = SpecialIds(vocabulary.pad_id, vocabulary.bos_id, vocabulary.eos_id)
        learned = config.model.positions == "learned"
        self._max_positions = config.model.max_positions if learned else None

    @classmethod
    def from_run(
        cls,
        workdir: str | Path,
        step: int | None = None,
        average: int = 1,
        decode: DecodeConfig | None = None,
    ) -> "Translator":
        """The model of a run's folder.

        Its newest checkpoint, that of `step`, or the mean of the last `average`.

        Raises:
          UserError: the folder holds no run, or not these checkpoints.
        """
        folder = RunFolder(workdir)
        config, vocabulary = folder.config(), folder.vocabulary()
        checkpoints = Checkpoints(folder.checkpoints_path, vocabulary.fingerprint)
        like = jax.eval_shape(lambda: initial_state(config, len(vocabulary)))
        one_device = replicated(make_mesh(jax.local_devices()[:1]))
        if average == 1:
            state, found = checkpoints.restore(like, one_device, step)
            params, steps = state.params, [found.step]
        else:
            params = checkpoints.restore_params(like, one_device, step, average)
            steps = [found.step for found in checkpoints.whole(average)]
        translator = cls(config, vocabulary, params, decode)
        translator.steps = tuple(steps)
        return translator

    def translate(
        self, lines: Iterable[str], window_size: int = _WINDOW
    ) -> Iterator[Translation]:
        """A translation for each line, in order.

        Blank lines come out blank without asking the model. A line of more than
        `decode.max_source_tokens` pieces is cut there, with a warning. `window_size`
        lines are read before the first is translated: with 1, each is answered at once.
        """
        numbered = iter(enumerate(lines, start=1))
        while window := list(itertools.islice(numbered, window_size)):
            found: dict[int, Translation] = {}
            sources: list[tuple[int, list[int]]] = []
            for number, line in window:
                ids = [] if is_blank(line) else self.vocabulary.encode(line)
                if ids:
                    sources.append((number, self._fit(number, ids)))
                else:
                    found[number] = _BLANK
            # Longest first: what does not fit into memory fails at once, not late.
            sources.sort(key=lambda item: -len(item[1]))
            while sources:
                width = self._width(len(sources[0][1]))
                most = max(n for n in _ROWS if n * width <= self._slots(width))
                batch, sources = sources[:most], sources[most:]
                found.update(self._translate_batch(batch, width))
            self._report_limits([n for n, _ in window if not found[n].finished])
            for number, _ in window:
                yield found.pop(number)

    def _report_limits(self, numbers: list[int]) -> None:
        """Names the lines whose translation is cut off."""
        if numbers:
            logger.warning(
                "%d translations reached their limit of source tokens plus %d "
                "(decode.max_extra_tokens): lines %s%s",
                len(numbers),
                self.decode.max_extra_tokens,
                ", ".join(map(str, numbers[:10])),
                ", ..." if len(numbers) > 10 else "",
            )

    def _slots(self, width: int) -> int:
        """Source slots of a batch: at least one row of any width."""
        return max(self.decode.tokens_per_batch, width)

    def _fit(self, number: int, ids: list[int]) -> list[int]:
        """A sentence's pieces with EOS, cut to what the model may see."""
        most = self.decode.max_source_tokens
        if self._max_positions:
            most = min(most, self._max_positions)
        if len(ids) + 1 > most:
            logger.warning(
                "line %d has %d tokens: only the first %d are translated "
                "(decode.max_source_tokens)",
                number,
                len(ids) + 1,
                most,
            )
            ids = ids[: most - 1]
        return [*ids, self.vocabulary.eos_id]

    def _width(self, length: int) -> int:
        """The narrowest width of the grid that holds a sentence."""
        for width in _WIDTHS:
            if length <= width:
                break
        else:
            width = -(-length // _WIDTHS[-1]) * _WIDTHS[-1]
        return min(width, self._max_positions or width)

    def _translate_batch(
        self, batch: list[tuple[int, list[int]]], width: int
    ) -> Iterator[tuple[int, Translation]]:
        """Searches for a few sentences in an array of one of few shapes."""
        rows = min(n for n in _ROWS if n >= len(batch))
        source = np.full((rows, width), self.vocabulary.pad_id, np.int32)
        limits = np.zeros(rows, np.int32)
        length = width + self.decode.max_extra_tokens
        length = min(length, self._max_positions or length)
        for row, (_, ids) in enumerate(batch):
            source[row, : len(ids)] = ids
            limits[row] = min(len(ids) + self.decode.max_extra_tokens, length)
        result = beam_search(
            self.params,
            source,
            limits,
            self.decode.alpha,
            config=self.config.model,
            vocab_size=len(self.vocabulary),
            ids=self._ids,
            beam=self.decode.beam,
            length=length,
        )
        result = jax.device_get(result)
        for row, (number, _) in enumerate(batch):
            yield number, self._translation(result, row)

    def _translation(self, result: SearchResult, row: int) -> Translation:
        """One row of a result as text."""
        finished = bool(result.finished[row])
        tokens = tuple(result.tokens[row][: result.lengths[row]].tolist())
        return Translation(
            text=self.vocabulary.decode(tokens),
            tokens=tokens,
            log_prob=float(result.log_probs[row]),
            score=float(result.scores[row]),
            finished=finished,
        )
