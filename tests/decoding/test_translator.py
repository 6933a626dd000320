"""Laws of text in, text out: order, blank and odd lines, limits, shapes, runs.

Most of them hold for any model: there a stand-in for the pool copies its sources.
"""

import dataclasses
import functools
import logging
import random
from collections.abc import Iterator, Sequence

import jax
import numpy as np
import pytest

from transformer.config import Config
from transformer.data import Position, Vocabulary
from transformer.decoding import Translation, Translator
from transformer.decoding import search as search_module
from transformer.decoding import translator as translator_module
from transformer.decoding.pool import Found, Job, Pool
from transformer.errors import UserError
from transformer.model import initial_variables
from transformer.training import Checkpoints, RunFolder, initial_state

WORDS = "a the dog cat sees bites old big man street animal tired wide was it".split()
PARENTS_AND_CHILD = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


def text(count: int, longest: int = 12, seed: int = 0) -> list[str]:
    """Random sentences over a few words."""
    draw = random.Random(seed)
    return [
        " ".join(draw.choices(WORDS, k=draw.randint(1, longest))) for _ in range(count)
    ]


@functools.cache
def vocabulary(config: Config) -> Vocabulary:
    """A vocabulary of ASCII words, with bytes for everything else."""
    return Vocabulary.train(text(200), config.data)


@functools.cache
def params(config: Config) -> dict:
    """A random model that often has a clear favourite."""
    variables = initial_variables(
        config.model, len(vocabulary(config)), jax.random.key(0)
    )
    return jax.tree.map(lambda array: 1.5 * array, variables["params"])


def decoding(config: Config, **settings) -> Config:
    """The configuration with other search settings."""
    return dataclasses.replace(
        config, decode=dataclasses.replace(config.decode, **settings)
    )


class CopyingPool(Pool):
    """Gives every source back, within its limit, the longest sentences first."""

    jobs: list[Job] = []  # that were given to any pool of the test

    def __init__(self, params, network, rules, alpha, slots):
        """Has the signature of `Pool`."""
        self.eos = network.ids.eos

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, list[Found]]]:
        """Each job once, as the real pool does: in another order."""
        self.jobs.extend(jobs)
        for number in sorted(range(len(jobs)), key=lambda n: -len(jobs[n].source)):
            tokens = tuple(jobs[number].source[: jobs[number].limit])
            yield number, [Found(tokens, -1.0, -1.0, tokens[-1] == self.eos)]


@pytest.fixture
def copying(monkeypatch) -> type[CopyingPool]:
    """Puts the copying pool in the place of the real one."""
    monkeypatch.setattr(CopyingPool, "jobs", [])
    monkeypatch.setattr(translator_module, "Pool", CopyingPool)
    return CopyingPool


def copies(config: Config, lines: list[str], **settings) -> list[str]:
    """Texts that a translator gives for `lines`."""
    translator = Translator(decoding(config, **settings), vocabulary(config), {})
    return [translation.text for translation in translator.translate(lines)]


def test_output_is_in_the_order_of_the_input(tiny_config, copying):
    """Lines are sorted by length to be translated, and put back, over any window.

    Elsewhere the sorted order was printed and users scored shuffled files.
    """
    lines = [f"{number} {line}" for number, line in enumerate(text(300))]
    assert copies(tiny_config, lines) == lines
    translator = Translator(tiny_config, vocabulary(tiny_config), {})
    for window_size in (1, 7):
        found = translator.translate(lines, window_size=window_size)
        assert [translation.text for translation in found] == lines


def test_no_line_is_lost(tiny_config, copying):
    """Ten thousand odd lines give ten thousand lines without a line end inside.

    Elsewhere about a hundred lines of a long file went missing without an error.
    """
    odd = ["", "x", "-", "dog " * 400, "\U0001f680", "\u2028", "a\u0085b", "\r", "same"]
    odd += [PARENTS_AND_CHILD, "\u2581", "<s> </s> <pad>", "<0x0A>", "\t", "|||"]
    lines = random.Random(0).choices([*odd, *text(20)], k=10_000)
    found = copies(tiny_config, lines)
    assert len(found) == len(lines)
    assert not any(set(line) & set("\n\r\u2581") for line in found)
    both = zip(lines, found, strict=True)
    assert {ours for line, ours in both if line == "same"} == {"same"}


BLANK = ["", " ", "\t", "\u00a0", "\u3000", "\u200f\u200f", "\ufeff", "\u200d", "\r"]


def test_blank_lines_do_not_reach_the_model(tiny_config, copying):
    """White space, and marks that leave nothing to translate, stay blank.

    Elsewhere a lone space became "I don't know.", and a blank line crashed.
    """
    assert copies(tiny_config, BLANK * 8) == [""] * len(BLANK) * 8
    assert copies(tiny_config, []) == []
    assert copying.jobs == []
    assert copies(tiny_config, ["a dog", "", "-", "cat"]) == ["a dog", "", "-", "cat"]


def test_a_long_line_is_cut_and_named(tiny_config, copying, caplog):
    """It costs neither the file nor its neighbours, and its number is logged."""
    lines = ["a dog", "the cat " * 60, "old man"]
    found = copies(tiny_config, lines, max_source_tokens=16)
    assert [found[0], found[2]] == ["a dog", "old man"]
    assert found[1].startswith("the cat") and len(found[1]) < 16 * 8
    (record,) = caplog.records
    assert "line 2 " in record.getMessage()
    assert "first 16 " in record.getMessage()
    assert record.levelno == logging.WARNING


def test_output_that_reaches_its_limit_is_named(
    tiny_config, copying, monkeypatch, caplog
):
    """The limit is the source's tokens plus `max_extra_tokens`, and it says so.

    Elsewhere long sentences ended in the middle at 100 tokens without a message.
    """

    class EndlessPool(CopyingPool):
        """Never ends a sentence."""

        def run(self, jobs):
            """As many tokens as allowed."""
            self.jobs.extend(jobs)
            for number, job in enumerate(jobs):
                tokens = (self.eos + 2,) * job.limit
                yield number, [Found(tokens, -1.0, -1.0, False)]

    monkeypatch.setattr(translator_module, "Pool", EndlessPool)
    config = decoding(tiny_config, max_extra_tokens=7)
    translator = Translator(config, vocabulary(tiny_config), {})
    found = list(translator.translate(["", "a dog", "the cat " * 40]))
    assert [translation.finished for translation in found] == [True, False, False]
    assert [job.limit - len(job.source) for job in copying.jobs] == [7, 7]
    (message,) = (record.getMessage() for record in caplog.records)
    assert "limit" in message and "lines 2, 3" in message


def test_characters_outside_the_vocabulary_survive(tiny_config, copying):
    """Unknown characters go through as bytes, and never come out as <0x..> or half.

    Elsewhere pieces were joined as strings, or a cut left a replacement character.
    """
    line = "\U0001f680 \uae7c dog"
    assert copies(tiny_config, [line]) == [line]
    for longest in range(1, 14):
        (cut,) = copies(tiny_config, [line], max_source_tokens=longest)
        cut.encode("utf-8")
        assert "<0x" not in cut and "\ufffd" not in cut and line.startswith(cut.strip())
    (bars,) = copies(tiny_config, ["level \u2581\u2582\u2583 bars"])
    assert bars == "level \u2582\u2583 bars"


def test_shapes_are_few(tiny_config):
    """Lines of 1 to 120 pieces need a fixed set of compilations, files add none.

    Elsewhere every new length, and every last batch, compiled anew for seconds.
    """
    compiled = (search_module.encode, search_module.admit, search_module.search)

    def count() -> int:
        """Programs that exist now."""
        return sum(function._cache_size() for function in compiled)

    config = decoding(tiny_config, beam=1, max_extra_tokens=8)
    translator = Translator(config, vocabulary(tiny_config), params(tiny_config))
    first, second = text(500, longest=40), text(500, longest=40, seed=1)
    sizes = [len(translator.vocabulary.encode(line)) for line in first]
    assert min(sizes) < 4 and max(sizes) > 100
    before = count()
    assert len(list(translator.translate(first))) == 500
    between = count()
    assert len(list(translator.translate(second))) == 500
    assert between - before <= 24
    assert count() == between


def test_translation_streams(tiny_config, copying):
    """Lines are read a window at a time, so a pipe of any length fits into memory."""
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield "dog"

    translator = Translator(tiny_config, vocabulary(tiny_config), {})
    found = translator.translate(endless())
    for _ in range(3000):
        next(found)
    assert read <= 3 * 2048
    read = 0
    next(translator.translate(endless(), window_size=1))
    assert read == 1


def test_a_prefix_goes_with_its_line(tiny_config, copying):
    """Each search begins with its own line's prefix; a wrong number is an error."""
    words = vocabulary(tiny_config)
    translator = Translator(decoding(tiny_config, max_extra_tokens=1), words, {})
    lines, prefixes = ["a dog", "", "cat", "man"], ["the", "a", "", "dog " * 20]
    found = translator.translate(lines, window_size=3, prefixes=iter(prefixes))
    assert [translation.text for translation in found] == lines
    assert [list(job.prefix) for job in copying.jobs] == [
        words.encode(prefixes[number]) for number in (0, 2, 3)
    ]
    assert copying.jobs[2].limit == len(words.encode(prefixes[3])) + 1
    for wrong in ([*prefixes, "one more"], prefixes[:3]):
        with pytest.raises(UserError, match="line [45] has no"):
            list(translator.translate(lines, prefixes=wrong))


def test_translations_begin_with_their_prefix(tiny_config):
    """The text does, in a real search, whether or not the model likes it."""
    config = decoding(tiny_config, max_extra_tokens=4)
    translator = Translator(config, vocabulary(tiny_config), params(tiny_config))
    lines, prefixes = ["a dog", "cat", "the old man"], ["the tired cat", "", "was"]
    found = list(translator.translate(lines, prefixes=prefixes))
    for translation, prefix in zip(found, prefixes, strict=True):
        pieces = tuple(translator.vocabulary.encode(prefix))
        assert translation.tokens[: len(pieces)] == pieces
        assert translation.text.startswith(prefix)


def scores(translations: list[Translation]) -> list[float]:
    """The scores alone."""
    return [translation.score for translation in translations]


def test_batches_change_nothing(tiny_config):
    """A line's translation does not depend on the other lines or on chance.

    Elsewhere it did: by about 9 BLEU between batches of 1 and of 30, and a single
    character came back empty beside a long line. Dropout stays off.
    """
    model = dataclasses.replace(tiny_config.model, dropout=0.3)
    config = decoding(dataclasses.replace(tiny_config, model=model), max_extra_tokens=4)
    lines = ["1.", "", *text(12, longest=1), "the dog sees the cat"]
    found = []
    for tokens_per_batch in (1, 1024, 1024):
        changed = decoding(config, tokens_per_batch=tokens_per_batch)
        translator = Translator(changed, vocabulary(tiny_config), params(tiny_config))
        found.append(list(translator.translate(lines)))
    alone, together, again = found
    assert together == again
    assert [t.tokens for t in alone] == [t.tokens for t in together]
    np.testing.assert_allclose(scores(alone), scores(together), atol=1e-4)
    assert len({translation.tokens for translation in together}) > 5
    for translation in together[2:]:
        assert translation.score == pytest.approx(
            translation.log_prob / ((5 + len(translation.tokens)) / 6) ** 0.6, abs=1e-4
        )
        ends = translation.tokens[-1] == vocabulary(tiny_config).eos_id
        assert ends == translation.finished


def test_learned_positions_are_not_exceeded(tiny_config, caplog):
    """Source and output stay within the model's table of positions."""
    model = dataclasses.replace(
        tiny_config.model, positions="learned", max_positions=12
    )
    config = decoding(
        dataclasses.replace(tiny_config, model=model), beam=1, tokens_per_batch=64
    )
    translator = Translator(config, vocabulary(tiny_config), params(config))
    lines = ["dog", "the dog " * 30]
    found = [best for best, *_ in translator.translate_nbest(lines, 1, align=True)]
    assert found[0].alignment and len(found[0].tokens) == 12  # as many as there can be
    assert all(1 <= len(translation.tokens) <= 12 for translation in found)
    cut, limit = (record.getMessage() for record in caplog.records)
    assert "line 2 " in cut and "12 are used (model.max_positions)" in cut
    assert "12 (model.max_positions)" in limit


def test_a_run_translates_with_its_checkpoints(tiny_config, tmp_path):
    """The newest, a given one, or the mean of the last; refusals name what is there."""
    config = decoding(tiny_config, beam=1, max_extra_tokens=2, tokens_per_batch=8)
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(UserError, match="is not a run's folder"):
        Translator.from_run(folder.path)
    folder.prepare(config)
    words = vocabulary(tiny_config)
    words.save(folder.vocabulary_path)
    start = initial_state(config, len(words))
    checkpoints = Checkpoints(folder.checkpoints_path, words.fingerprint, keep_last=3)
    for step, factor in ((1, 1.0), (2, 2.0), (3, 6.0)):
        state = start._replace(
            step=jax.numpy.asarray(step),
            params=jax.tree.map(lambda a, f=factor: f * a, start.params),
        )
        checkpoints.save(state, Position(0, step), {})
        checkpoints.wait()

    def loaded(**choice) -> tuple[float, tuple[int, ...]]:
        """How often the start is in the parameters, and the checkpoints' steps."""
        translator = Translator.from_run(folder.path, **choice)
        table = np.asarray(translator.params["embedding"])
        return float((table / start.params["embedding"]).mean()), translator.steps

    assert loaded() == (pytest.approx(6), (3,))
    assert loaded(step=2) == (pytest.approx(2), (2,))
    assert loaded(average=2) == (pytest.approx(4), (3, 2))
    with pytest.raises(UserError, match="steps 1, 2, 3"):
        Translator.from_run(folder.path, step=7)
    with pytest.raises(UserError, match="9 checkpoints"):
        Translator.from_run(folder.path, average=9)
    in_memory = Translator(config, words, start.params)
    from_disk = Translator.from_run(folder.path, step=1)
    assert list(from_disk.translate(["a dog"])) == list(in_memory.translate(["a dog"]))
