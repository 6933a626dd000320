"""From text to text: the model, its vocabulary and the search in one object."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from transformer.config import Config, DecodeConfig
from transformer.data.text import is_blank
from transformer.data.vocabulary import Vocabulary
from transformer.decoding.limits import Limits
from transformer.decoding.pool import Found, Job, Pool
from transformer.decoding.scoring import Score, score_pairs, word_alignment
from transformer.decoding.state import Network, Rules, SpecialIds
from transformer.errors import UserError
from transformer.training import (
    Checkpoints,
    RunFolder,
    initial_state,
    make_mesh,
    replicated,
)

_WINDOW = 2048  # lines read before the first is translated, to sort them by length


class Translation(NamedTuple):
    """One line's translation.

    `tokens` are its pieces, with EOS if the hypothesis ended (`finished`); `log_prob`
    is their total in nats, and `score` that divided by the length penalty. A blank line
    has no tokens. `alignment` has pairs (source word, target word), from 0, where they
    were asked for.
    """

    text: str
    tokens: tuple[int, ...]
    log_prob: float
    score: float
    finished: bool
    alignment: tuple[tuple[int, int], ...] = ()


_BLANK = Translation("", (), 0.0, 0.0, True)


class Translator:
    """Translates lines of text with one model, or several that vote.

    Attributes:
      config: the first model's run.
      vocabulary: that of all models.
      params: the first model's parameters.
      steps: of its checkpoints, where that is known.
      decode: how to search; may be replaced between calls.
    """

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
        self.steps: tuple[int, ...] = ()
        self.decode = decode or config.decode
        self._voters = [(config.model, self.params)]

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

    def add(self, other: "Translator") -> None:
        """Makes an ensemble: each piece gets the mean of the models' probabilities.

        Raises:
          UserError: the other model's pieces are not these.
        """
        if other.vocabulary.fingerprint != self.vocabulary.fingerprint:
            raise UserError(
                "models of an ensemble must share their vocabulary: these were trained "
                "with two (data.vocab_model gives a run the vocabulary of another)"
            )
        self._voters.extend(other._voters)

    def translate(
        self,
        lines: Iterable[str],
        window_size: int = _WINDOW,
        prefixes: Iterable[str] | None = None,
    ) -> Iterator[Translation]:
        """A translation for each line, in order.

        Blank lines come out blank without asking the model. A line of more than
        `decode.max_source_tokens` pieces is cut there, with a warning. `window_size`
        lines are read before the first is translated: with 1, each is answered at once.
        With `prefixes`, one for each line, a translation begins with the pieces of its
        prefix.
        """
        for best, *_ in self.translate_nbest(lines, 1, window_size, prefixes):
            yield best

    def translate_nbest(
        self,
        lines: Iterable[str],
        nbest: int,
        window_size: int = _WINDOW,
        prefixes: Iterable[str] | None = None,
        align: bool = False,
    ) -> Iterator[list[Translation]]:
        """As `translate`, but the `nbest` best of each line, the best score first.

        Fewer where fewer hypotheses have ended; sampling draws `nbest` of them, in no
        order, and they may be equal. With `align` they have their `alignment`.

        Raises:
          UserError: `nbest` is less than 1 or more than the beam holds; there are not
            as many prefixes as lines.
        """
        self.check_nbest(nbest)
        pool = self._pool(nbest)
        pairs = (
            ((line, "") for line in lines)
            if prefixes is None
            else _pairs(lines, prefixes, "prefix")
        )
        numbered = enumerate(pairs, start=1)
        while window := list(itertools.islice(numbered, window_size)):
            found = self._translate_window(pool, window, nbest, align)
            cut_off = [n for n in found if not all(t.finished for t in found[n])]
            self._limits().warn_of_cut_translations(cut_off)
            for number, _ in window:
                yield found.pop(number)

    def check_nbest(self, nbest: int) -> None:
        """Raises a `UserError` unless there can be so many translations of a line."""
        if nbest < 1 or (nbest > self.decode.beam and not self.decode.temperature):
            raise UserError(
                f"nbest is {nbest}: a beam of {self.decode.beam} gives 1 to "
                f"{self.decode.beam}"
            )

    def score(
        self, sources: Iterable[str], targets: Iterable[str], window_size: int = _WINDOW
    ) -> Iterator[Score]:
        """What the model thinks of given translations: see `Score`.

        In order. A blank target is scored as an empty output, a single EOS. Pairs are
        cut at `decode.max_source_tokens` on either side, with a warning.

        Raises:
          UserError: there are not as many targets as sources.
        """
        encode, eos = self.vocabulary.encode, self.vocabulary.eos_id
        limits = self._limits()
        numbered = enumerate(_pairs(sources, targets, "target"), start=1)
        while window := list(itertools.islice(numbered, window_size)):
            pairs = [
                (
                    limits.numbered_source(number, encode(source), eos),
                    limits.numbered_source(number, encode(target), eos),
                )
                for number, (source, target) in window
            ]
            yield from score_pairs(self.network(), self._params(), pairs)

    def alignment(self, score: Score) -> tuple[tuple[int, int], ...]:
        """Pairs (source word, target word), from 0, of a scored pair."""
        source, target = map(self._pieces_of_words, (score.source, score.tokens))
        return tuple(word_alignment(source, target, score.attention))

    def _pieces_of_words(self, ids: Sequence[int]) -> list[str]:
        """A sentence's pieces without EOS."""
        eos = self.vocabulary.eos_id
        return self.vocabulary.pieces(ids[:-1] if ids and ids[-1] == eos else ids)

    def network(self) -> Network:
        """What the models are, without their parameters."""
        vocabulary = self.vocabulary
        ids = SpecialIds(vocabulary.pad_id, vocabulary.bos_id, vocabulary.eos_id)
        return Network(tuple(m for m, _ in self._voters), len(vocabulary), ids)

    def _params(self) -> tuple[dict[str, Any], ...]:
        """The models' parameters, in the order of `network`."""
        return tuple(params for _, params in self._voters)

    def _pool(self, nbest: int) -> Pool:
        """The search with the settings of now."""
        decode = self.decode
        sampling = decode.temperature > 0
        rules = Rules(
            beam=1 if sampling else decode.beam,
            nbest=1 if sampling else nbest,
            min_length=decode.min_length,
            no_repeat_ngram=decode.no_repeat_ngram,
        )
        if sampling:
            rules = rules._replace(
                temperature=decode.temperature, top_k=decode.top_k, top_p=decode.top_p
            )
        return Pool(
            self._params(), self.network(), rules, decode.alpha, decode.tokens_per_batch
        )

    def _translate_window(
        self,
        pool: Pool,
        window: list[tuple[int, tuple[str, str]]],
        nbest: int,
        align: bool,
    ) -> dict[int, list[Translation]]:
        """Translations by line number."""
        limits = self._limits()
        draws = nbest if self.decode.temperature else 1
        found: dict[int, list[Translation]] = {}
        jobs: list[Job] = []
        owners: list[int] = []
        for number, (line, prefix) in window:
            ids = [] if is_blank(line) else self.vocabulary.encode(line)
            if not ids:
                found[number] = [_BLANK]
                continue
            found[number] = []
            source = limits.numbered_source(number, ids, self.vocabulary.eos_id)
            first = self.vocabulary.encode(prefix)
            limit = limits.longest_output(source, first)
            for draw in range(draws):
                stream = (self.decode.seed, number * draws + draw)
                jobs.append(Job(source, limit, first[:limit], stream))
                owners.append(number)
        results = dict(pool.run(jobs))
        translations = [
            (job.source, self._translation(one))
            for index, job in enumerate(jobs)
            for one in results[index]
        ]
        owners = [number for index, number in enumerate(owners) for _ in results[index]]
        best = self._aligned(translations) if align else (t for _, t in translations)
        for number, translation in zip(owners, best, strict=True):
            found[number].append(translation)
        return found

    def source_ids(self, line: str) -> list[int]:
        """What the model sees of a line: its pieces up to a limit, and EOS."""
        words = self.vocabulary
        return self._limits().source(words.encode(line), words.eos_id)

    def _limits(self) -> Limits:
        """How long lines and their translations may be, with the settings of now."""
        decode = self.decode
        return Limits(
            decode.max_source_tokens,
            decode.max_extra_tokens,
            self.network().max_positions,
        )

    def _translation(self, found: Found) -> Translation:
        """A hypothesis as text."""
        return Translation(self.vocabulary.decode(found.tokens), *found)

    def _aligned(
        self, pairs: list[tuple[Sequence[int], Translation]]
    ) -> Iterator[Translation]:
        """Translations of the sources beside them, with their alignments."""
        found = [(source, translation.tokens) for source, translation in pairs]
        scores = score_pairs(self.network(), self._params(), found)
        for (_, translation), score in zip(pairs, scores, strict=True):
            yield translation._replace(alignment=self.alignment(score))


def _pairs(
    lines: Iterable[str], others: Iterable[str], name: str
) -> Iterator[tuple[str, str]]:
    """Line by line; a `UserError` where one side ends before the other."""
    both = itertools.zip_longest(lines, others)
    for number, (line, other) in enumerate(both, start=1):
        if line is None or other is None:
            missing = name if other is None else "source line"
            raise UserError(f"line {number} has no {missing}: give as many as lines")
        yield line, other
