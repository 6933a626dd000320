"""Laws of the vocabulary: nothing unknown, nothing leaked, errors that help."""

import dataclasses
import io
import logging
import pickle
import re
from pathlib import Path

import pytest
import sentencepiece

from transformer.config import Config, DataConfig
from transformer.data.vocabulary import Vocabulary
from transformer.errors import UserError

SENTENCES = [
    "the cat sat on the mat",
    "the dog ran after the cat",
    "Die Katze saß auf der Matte",
    "Der Hund lief der Katze nach",
    "a man and a woman walk along the street",
] * 8


@pytest.fixture
def config(tiny_config: Config) -> DataConfig:
    """Room for the 256 bytes and a few pieces."""
    return dataclasses.replace(tiny_config.data, vocab_size=330)


@pytest.fixture
def vocabulary(config: DataConfig) -> Vocabulary:
    """A small vocabulary."""
    return Vocabulary.train(SENTENCES, config)


def test_round_trip_and_special_ids(vocabulary):
    """Encoding has no special ids, decoding ignores them, sizes are as asked."""
    assert len(vocabulary) == 330
    text = "the woman saß on the street"
    ids = vocabulary.encode(text)
    special = {vocabulary.pad_id, vocabulary.bos_id, vocabulary.eos_id}
    assert len(special) == 3
    assert not special & set(ids)
    assert vocabulary.decode([vocabulary.bos_id, *ids, vocabulary.eos_id]) == text
    assert vocabulary.encode_batch([text, ""]) == [ids, []]


@pytest.mark.parametrize("text", ["<s>", "</s> x", "<pad>", "<unk>", "<0x41>"])
def test_text_never_becomes_a_control_id(vocabulary, text):
    """A user may write the name of a control piece."""
    ids = vocabulary.encode(text)
    assert not {vocabulary.pad_id, vocabulary.bos_id, vocabulary.eos_id} & set(ids)
    assert vocabulary.decode(ids) == text


@pytest.mark.parametrize("text", ["🚀 깰", "naïve ‘quotes’", "ß€😀", "日本語"])
def test_characters_never_seen_survive(vocabulary, text):
    """Byte fallback: no unknown mark, no <0x..>, no half character in the output."""
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == text
    for cut in range(len(ids)):
        part = vocabulary.decode(ids[:cut])
        assert "<0x" not in part
        assert "\ufffd" not in part
        assert text.startswith(part.rstrip())


def test_stray_continuation_bytes_vanish(vocabulary):
    """A model may produce bytes that begin no character; neighbours are untouched."""
    rocket = vocabulary.encode("🚀")[-4:]
    word = vocabulary.encode("cat")
    assert vocabulary.decode([*rocket[1:], *word]) == vocabulary.decode(word)
    assert vocabulary.decode([*word, *rocket[:2], *word]).replace(" ", "") == "catcat"


def test_output_is_one_line_without_space_marks(vocabulary):
    """A literal U+2581 becomes a space (documented), an LF byte too."""
    line_feed = vocabulary.encode("🚀")[-4] - 0xF0 + 0x0A
    assert "\u2581" not in vocabulary.decode(vocabulary.encode("level ▁▂▃ bars"))
    assert vocabulary.decode([*vocabulary.encode("a"), line_feed]).count("\n") == 0


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("…  ﬁne", "... fine"),
        ("２ ½ ™", "2 1⁄2 TM"),
        ("double  spaces ", "double spaces"),
        ("zero\u200bwidth", "zero width"),
    ],
)
def test_normalisation_is_nmt_nfkc(vocabulary, text, normalised):
    """The documented losses, pinned for the version in use."""
    assert vocabulary.decode(vocabulary.encode(text)) == normalised


def test_joiners_and_direction_marks(vocabulary):
    """What the shipped version does with them: no crash, the letters stay."""
    for text in ("می‌خواهم", "👨‍👩‍👧 ok", "\u200fשלום\u200f"):
        decoded = vocabulary.decode(vocabulary.encode(text))
        letters = re.sub(r"[\s\u200c\u200d\u200e\u200f]", "", text)
        assert re.sub(r"[\s\u200c\u200d\u200e\u200f]", "", decoded) == letters


def test_same_text_same_bytes_and_no_file_names(config, vocabulary):
    """A vocabulary is a function of the sentences alone."""
    again = Vocabulary.train(iter(SENTENCES), config)
    assert again.model_bytes == vocabulary.model_bytes
    assert again.fingerprint == vocabulary.fingerprint
    other = Vocabulary.train([*SENTENCES, "zebra"], config)
    assert other.fingerprint != vocabulary.fingerprint


def test_saves_loads_and_pickles(vocabulary, tmp_path: Path):
    """The file is whole, nothing else is left, worker processes get the same."""
    path = tmp_path / "vocab.model"
    vocabulary.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["vocab.model"]
    assert Vocabulary.load(path).fingerprint == vocabulary.fingerprint
    copy = pickle.loads(pickle.dumps(vocabulary))
    assert copy.encode("the cat") == vocabulary.encode("the cat")


@pytest.mark.parametrize("size", [32000, 500])
def test_too_large_a_size_is_refused_with_one_that_works(config, size):
    """The hint names the largest size, and following it succeeds."""
    lines = SENTENCES[:5]
    with pytest.raises(UserError, match=f"vocab_size is {size}") as refused:
        Vocabulary.train(lines, dataclasses.replace(config, vocab_size=size))
    hint = re.search(r"--config\.data\.vocab_size=(\d+)", str(refused.value))
    assert hint
    largest = dataclasses.replace(config, vocab_size=int(hint[1]))
    assert len(Vocabulary.train(lines, largest)) == int(hint[1])


@pytest.mark.parametrize(
    "lines",
    [
        SENTENCES,
        ["ABC ＡＢＣ ａｂｃ abc ①②"] * 3,  # normalisation leaves fewer characters
        ["ﷺ ab"] * 3,  # and here more
    ],
)
def test_too_small_a_size_is_refused_with_the_least(config, lines):
    """The hint is about normalised text: the raw characters gave sizes that failed."""
    with pytest.raises(
        UserError, match="vocab_size is 262: .*need at least"
    ) as refused:
        Vocabulary.train(lines, dataclasses.replace(config, vocab_size=262))
    least = int(str(refused.value).rsplit(" ", 1)[1])
    smallest = dataclasses.replace(config, vocab_size=least)
    assert len(Vocabulary.train(lines, smallest)) == least
    with pytest.raises(UserError, match=f"need at least {least}"):
        Vocabulary.train(lines, dataclasses.replace(config, vocab_size=least - 1))


@pytest.mark.parametrize("lines", [[], ["", " "], ["\u200d", "\u200f"]])
def test_nothing_to_train_on_is_said(config, lines):
    """Marks that normalisation removes are no text either."""
    with pytest.raises(UserError, match="no text to train"):
        Vocabulary.train(lines, config)


def test_names_of_control_pieces_may_occur_in_training_text(config):
    """Web text holds mark-up; the pieces keep their single meaning."""
    line = "<s>bold</s> <pad> <unk> <0x41>"
    vocabulary = Vocabulary.train([line] * 20 + SENTENCES, config)
    ids = vocabulary.encode(line)
    assert not {vocabulary.pad_id, vocabulary.bos_id, vocabulary.eos_id} & set(ids)
    assert vocabulary.decode(ids) == line


def test_nothing_is_written_to_standard_error_by_the_library(config, capfd, caplog):
    """The trainer's pages of chatter are off; our own lines say what goes on."""
    with caplog.at_level(logging.INFO):
        Vocabulary.train(SENTENCES, config)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "trainer_interface" not in captured.err
    assert "training 330 pieces on 40 lines" in caplog.text
    assert "330 pieces trained on 40 lines in" in caplog.text


def test_a_nul_does_not_cut_the_text(config):
    """Elsewhere C strings ended at it; the vocabulary still loads."""
    vocabulary = Vocabulary.train([*SENTENCES, "a\0b c"], config)
    again = Vocabulary(vocabulary.model_bytes)
    assert again.decode(again.encode("a\0b c")).replace("\0", "") == "ab c"


def test_long_lines_are_counted_and_all_long_is_an_error(config, caplog):
    """Elsewhere they vanished with a warning easily missed, or gave "no sentences"."""
    small = dataclasses.replace(config, vocab_max_bytes=50)
    with caplog.at_level(logging.WARNING):
        Vocabulary.train([*SENTENCES, "ß" * 26, "ß" * 25], small)
    assert "1 lines over 50 bytes" in caplog.text
    with pytest.raises(UserError, match="all 3 lines are over 50 bytes.*vocab_max"):
        Vocabulary.train(["x" * 51] * 3, small)


def test_a_sample_of_the_lines_can_train_it(config):
    """`vocab_sentences` lines at most, the same ones every time."""
    few = dataclasses.replace(config, vocab_sentences=20)
    lines = [*SENTENCES[:20], *(f"{line} again" for line in SENTENCES[20:])]
    one, other = (Vocabulary.train(lines, few) for _ in range(2))
    assert one.model_bytes == other.model_bytes
    for head in (lines, lines[:20]):  # neither all lines nor the first twenty
        assert Vocabulary.train(head, config).model_bytes != one.model_bytes


def test_what_is_no_vocabulary_is_refused(tmp_path: Path):
    """A text file or a missing one is named."""
    (tmp_path / "x").write_text("not a model")
    with pytest.raises(UserError, match="x is not a SentencePiece model"):
        Vocabulary.load(tmp_path / "x")
    with pytest.raises(UserError, match="missing cannot be read"):
        Vocabulary.load(tmp_path / "missing")


def test_a_model_cut_short_is_refused(vocabulary, tmp_path: Path):
    """A file that was half copied must not load as a smaller vocabulary."""
    for size in (0, 100, len(vocabulary.model_bytes) - 30):
        (tmp_path / "cut.model").write_bytes(vocabulary.model_bytes[:size])
        with pytest.raises(UserError, match="cut.model is not a SentencePiece model"):
            Vocabulary.load(tmp_path / "cut.model")


@pytest.mark.parametrize(
    ("settings", "lack"),
    [
        ({"byte_fallback": False, "pad_id": 3}, "without byte fallback"),
        ({"byte_fallback": True, "pad_id": -1}, "lacks a pad"),
        ({"byte_fallback": True, "pad_id": 3, "bos_id": -1}, "bos"),
    ],
)
def test_models_made_for_something_else_are_refused(settings, lack):
    """A model of the user's must have all that the decoder needs."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(SENTENCES),
        model_writer=model,
        model_type="bpe",
        vocab_size=300,
        hard_vocab_limit=False,
        minloglevel=2,
        **settings,
    )
    with pytest.raises(UserError, match=f"mine .*{lack}"):
        Vocabulary(model.getvalue(), "mine")
