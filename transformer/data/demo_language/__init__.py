"""A small English-German language that shows the idea working with no download.

Sentences come from a grammar with real German morphology. The famous one is among them:
"The animal did not cross the street because it was too tired." needs "es" (das Tier),
"... because it was too wide." needs "sie" (die Straße). Test sentences combine words
in ways that training never shows, and the pronoun test's combinations of two nouns and
an adjective never occur in training. It is a demonstration, not a benchmark.
"""

import functools
import hashlib
import random
import re
from collections.abc import Iterable
from typing import NamedTuple

from transformer.data.demo_language.german import PRONOUNS
from transformer.data.demo_language.grammar import (
    ANIMALS,
    BUILDINGS,
    GROUNDS,
    SUBJECT_REASONS,
    Sentence,
    place_reasons,
    pronoun_key,
    pronoun_sentence,
    random_sentence,
)
from transformer.data.demo_language.lexicon import (
    ADJECTIVES,
    NOUNS,
    Adjective,
    Noun,
    lexicon_size,
)
from transformer.data.text import ParallelText
from transformer.errors import UserError

__all__ = [
    "Contrast",
    "demo_corpus",
    "lexicon_size",
    "pronoun_correct",
    "pronoun_test",
]

_SIZES = {"train": 40_000, "validation": 500, "test": 300}
_CONTRASTS = 220  # pairs of sentences


class Contrast(NamedTuple):
    """A sentence whose "it" is one of two nouns; 2i and 2i + 1 differ in which."""

    source: str
    target: str
    pronoun: str
    antecedent: str


def demo_corpus(split: str) -> ParallelText:
    """The sentence pairs of "train", "validation" or "test"; always the same ones.

    Raises:
      UserError: there is no such split.
    """
    if split not in _SIZES:
        raise UserError(
            f"split {split!r}: the demo language has train, validation and test"
        )
    sentences = _corpora()[split]
    return ParallelText(
        [s.english for s in sentences],
        [s.german for s in sentences],
        f"demo:{split}.en",
        f"demo:{split}.de",
    )


@functools.cache
def pronoun_test() -> tuple[Contrast, ...]:
    """Contrast pairs of nouns with different genders, the famous one first."""
    return tuple(_contrast(*words) for words in _contrast_words())


@functools.cache
def _contrast_words() -> tuple[tuple[Noun, Noun, Noun, Adjective], ...]:
    """Animal, place, which of them is meant, and the adjective that says so."""
    rng = random.Random("pronouns")
    nouns = {noun.english: noun for noun in NOUNS}
    chosen = {(nouns["animal"], nouns["street"]): ("tired", "wide")}
    while len(chosen) < _CONTRASTS:
        animal, place = rng.choice(ANIMALS), rng.choice(GROUNDS + BUILDINGS)
        of_animal = rng.choice(SUBJECT_REASONS).english
        of_place = rng.choice(place_reasons(place)).english
        if animal.gender != place.gender:
            chosen.setdefault((animal, place), (of_animal, of_place))
    adjectives = {adjective.english: adjective for adjective in ADJECTIVES}
    return tuple(
        (*pair, referent, adjectives[reason])
        for pair, reasons in chosen.items()
        for referent, reason in zip(pair, reasons, strict=True)
    )


def _contrast(animal: Noun, place: Noun, referent: Noun, reason: Adjective) -> Contrast:
    """One sentence of a pair."""
    sentence = pronoun_sentence(animal, place, reason)
    article = {"m": "der", "f": "die", "n": "das"}[referent.gender]
    return Contrast(
        sentence.english,
        sentence.german,
        PRONOUNS[referent.gender],
        f"{article} {referent.german}",
    )


def pronoun_correct(contrast: Contrast, hypothesis: str) -> bool:
    """Whether the word behind "weil" is the pronoun that the sentence needs."""
    found = re.search(r"\bweil (\w+)", hypothesis)
    return found is not None and found[1] == contrast.pronoun


@functools.cache
def _corpora() -> dict[str, tuple[Sentence, ...]]:
    """All splits, drawn from one stream of random sentences."""
    rng = random.Random("demo")
    triples = {
        pronoun_key(animal, place, reason)
        for animal, place, _, reason in _contrast_words()
    }
    splits: dict[str, dict[str, Sentence]] = {name: {} for name in _SIZES}
    while len(splits["train"]) < _SIZES["train"]:
        sentence = random_sentence(rng)
        if triples & set(sentence.keys):
            continue
        split = _split(sentence)
        if split and len(splits[split]) < 4 * _SIZES[split]:
            splits[split].setdefault(sentence.english, sentence)
    known = _words(splits["train"].values())
    seen = {s.german for s in splits["train"].values()}
    chosen = {"train": tuple(splits["train"].values())}
    for name in ("validation", "test"):
        usable = [
            sentence
            for sentence in splits[name].values()
            if _words([sentence]) <= known and sentence.german not in seen
        ]
        chosen[name] = tuple(usable[: _SIZES[name]])
        seen.update(s.german for s in chosen[name])
    return chosen


def _split(sentence: Sentence) -> str:
    """The split that all of a sentence's combinations belong to, "" for a mixture."""
    splits = {_split_of(key) for key in sentence.keys}
    return splits.pop() if len(splits) == 1 else ""


def _split_of(key: tuple[str, ...]) -> str:
    """One combination in fifty belongs to the test split, one to validation."""
    place = hashlib.sha256("|".join(key).encode()).digest()[0]
    return "test" if place < 5 else "validation" if place < 11 else "train"


def _words(sentences: Iterable[Sentence]) -> set[str]:
    """All words of both sides."""
    return {
        word
        for sentence in sentences
        for text in (sentence.english, sentence.german)
        for word in re.findall(r"\w+", text.lower())
    }
