"""The subword vocabulary (section 5.1): SentencePiece, shared by both languages.

Text is normalised by SentencePiece's nmt_nfkc on the way in, which is lossy: ligatures,
half-width forms and fractions are decomposed, white space is folded, the zero-width
non-joiner and a literal U+2581 become spaces, and direction marks disappear.
"""

import hashlib
import io
import logging
import os
import random
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import SupportsIndex

import sentencepiece

from transformer.config import DataConfig
from transformer.data.text import is_blank
from transformer.errors import UserError

logger = logging.getLogger(__name__)

# Ids given to the trainer; everything else asks the vocabulary.
_PAD, _BOS, _EOS, _UNK = range(4)
_SPACE = "\u2581"  # how SentencePiece writes a space inside a piece


class Vocabulary:
    """Text to piece ids and back; owns the ids of pad, bos and eos."""

    def __init__(self, model: bytes, name: str = "the vocabulary"):
        """Loads a SentencePiece model from its bytes; `name` is for messages.

        Raises:
          UserError: these bytes are no SentencePiece model with pad, bos, eos and byte
            fallback.
        """
        self.model_bytes = model
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise UserError(f"{name} is not a SentencePiece model") from error
        self.pad_id: int = self._processor.pad_id()
        self.bos_id: int = self._processor.bos_id()
        self.eos_id: int = self._processor.eos_id()
        if min(self.pad_id, self.bos_id, self.eos_id) < 0:
            raise UserError(f"{name} lacks a pad, bos or eos piece")
        if not self._processor.IsByte(self._processor.PieceToId("<0x00>")):
            raise UserError(f"{name} was trained without byte fallback")

    def __reduce__(self) -> tuple:
        """Worker processes load the model again."""
        return Vocabulary, (self.model_bytes,)

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Reads a model file.

        Raises:
          UserError: there is none, or it is not usable.
        """
        try:
            model = Path(path).read_bytes()
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from error
        return cls(model, str(path))

    @classmethod
    def train(cls, sentences: Iterable[str], config: DataConfig) -> "Vocabulary":
        """Trains a BPE model with byte fallback on `sentences`.

        The same sentences give the same bytes. Lines over `data.vocab_max_bytes` are
        left out and counted in the log.

        Raises:
          UserError: no line is short enough, or there are too few different pieces for
            `data.vocab_size`; the sentence says how many are possible.
        """
        begin = time.monotonic()
        lines = _training_lines(sentences, config)
        logger.info(
            "vocabulary: training %s pieces on %s lines",
            f"{config.vocab_size:,}",
            f"{len(lines):,}",
        )
        try:
            model = _train(lines, config)
        except RuntimeError as error:
            raise UserError(_explain(str(error), config.vocab_size)) from error
        vocabulary = cls(model)
        logger.info(
            "vocabulary: %s pieces trained on %s lines in %.0f s",
            f"{len(vocabulary):,}",
            f"{len(lines):,}",
            time.monotonic() - begin,
        )
        return vocabulary

    def save(self, path: str | Path) -> None:
        """Writes the model; readers see the old file or the whole new one."""
        path = Path(path)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_bytes(self.model_bytes)
        temporary.replace(path)

    def __len__(self) -> int:
        """Number of pieces, control pieces included."""
        return self._processor.GetPieceSize()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the model's bytes, in hexadecimal."""
        return hashlib.sha256(self.model_bytes).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Piece ids without EOS; a control piece's name in the text stays text."""
        return self._processor.EncodeAsIds(text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text."""
        return self._processor.Encode(list(texts), out_type=int)

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """One line of text; control pieces and broken byte sequences leave no trace."""
        kept = self._without_broken_bytes(
            int(i) for i in ids if not self._processor.IsControl(int(i))
        )
        text = self._processor.DecodeIds(kept)
        return text.replace(_SPACE, " ").replace("\r", " ").replace("\n", " ")

    def pieces(self, ids: Iterable[SupportsIndex]) -> list[str]:
        """The pieces as they stand in the model, for labels."""
        return [self._processor.IdToPiece(int(i)) for i in ids]

    def _without_broken_bytes(self, ids: Iterable[int]) -> list[int]:
        """Drops byte pieces that do not make up whole UTF-8 characters.

        A search that is cut in the middle of a character leaves such bytes.
        """
        kept: list[int] = []
        run: list[int] = []
        for i in [*ids, None]:
            if i is not None and self._processor.IsByte(i):
                run.append(i)
                continue
            if run:
                values = bytes(int(self._processor.IdToPiece(b)[3:-1], 16) for b in run)
                whole = values.decode("utf-8", errors="ignore").encode("utf-8")
                first = self._processor.PieceToId("<0x00>")
                kept.extend(first + value for value in whole)
                run = []
            if i is not None:
                kept.append(i)
        return kept


def _training_lines(sentences: Iterable[str], config: DataConfig) -> list[str]:
    """The lines that train the vocabulary: short enough, and a sample if too many."""
    lines: list[str] = []
    too_long = 0
    draw = random.Random(0)
    for seen, line in enumerate(_counted(sentences)):
        if len(line.encode("utf-8")) > config.vocab_max_bytes:
            too_long += 1
        elif not config.vocab_sentences or len(lines) < config.vocab_sentences:
            lines.append(line)
        elif (place := draw.randrange(seen + 1 - too_long)) < len(lines):
            lines[place] = line  # reservoir sampling: every line has the same chance
    if too_long:
        logger.warning(
            "vocabulary: %s lines over %d bytes were left out (data.vocab_max_bytes)",
            f"{too_long:,}",
            config.vocab_max_bytes,
        )
    if too_long and not lines:
        raise UserError(
            f"all {too_long:,} lines are over {config.vocab_max_bytes} bytes: raise "
            "data.vocab_max_bytes or split the lines"
        )
    if all(map(is_blank, lines)):
        raise UserError("there is no text to train a vocabulary on")
    return lines


def _counted(sentences: Iterable[str]) -> Iterator[str]:
    """Passes sentences on and reports every million of them."""
    for number, line in enumerate(sentences, start=1):
        if number % 1_000_000 == 0:
            logger.info("vocabulary: %s lines read", f"{number:,}")
        yield line


def _explain(message: str, size: int) -> str:
    """What is wrong with `data.vocab_size`, from the trainer's own numbers.

    Only the trainer knows which characters and merges are left after normalisation.
    """
    if most := re.search(r"too high \(\d+\).*<= (\d+)", message):
        return (
            f"data.vocab_size is {size}, but this text has only {most[1]} different "
            f"pieces: set --config.data.vocab_size={most[1]} or less"
        )
    if least := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return (
            f"data.vocab_size is {size}: the different characters of this text, 256 "
            f"bytes and 4 control pieces need at least {least[1]}"
        )
    return f"the vocabulary could not be trained: {message}"


def _train(lines: list[str], config: DataConfig) -> bytes:
    """The bytes of a new model, from memory to memory: no file names in it."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="bpe",
        vocab_size=config.vocab_size,
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="nmt_nfkc",
        max_sentence_length=config.vocab_max_bytes,
        num_threads=1,
        pad_id=_PAD,
        bos_id=_BOS,
        eos_id=_EOS,
        unk_id=_UNK,
        minloglevel=2,
    )
    return model.getvalue()
