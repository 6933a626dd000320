"""Sentences of the demo language: what they say, in both languages.

Every sentence is built from one description, so that word order, agreement and case
follow from rules and not from text that is replaced. `keys` are its combinations of
content words; the splits are made of them.
"""

import dataclasses
import functools
import random
from collections.abc import Callable
from typing import NamedTuple

from transformer.data.demo_language.german import (
    PRONOUNS,
    Case,
    Determiner,
    Phrase,
    Tense,
    english_verb,
    finite,
    with_preposition,
)
from transformer.data.demo_language.lexicon import (
    ADJECTIVES,
    ADVERBS,
    NOUNS,
    VERBS,
    Adjective,
    Adverb,
    Noun,
    Verb,
)


class Sentence(NamedTuple):
    """A sentence pair and its combinations of content words."""

    english: str
    german: str
    keys: tuple[tuple[str, ...], ...]


@dataclasses.dataclass(frozen=True)
class Place:
    """A prepositional phrase of place; `case` is what the German preposition takes."""

    english: str
    german: str
    case: Case
    phrase: Phrase


@dataclasses.dataclass(frozen=True)
class Clause:
    """Who does what, when and where."""

    subject: Phrase
    verb: Verb
    object: Phrase | None
    tense: Tense
    negated: bool = False
    adverb: Adverb | None = None
    place: Place | None = None
    modal: tuple[str, str, str] | None = None  # English, German singular and plural

    def key(self) -> tuple[str, ...]:
        """The content words that belong together."""
        verb = f"{self.verb.base} {self.verb.particle}".strip()
        other = self.object.noun.english if self.object else ""
        place = self.place.phrase.noun.english if self.place else ""
        return (self.subject.noun.english, verb, other, place)

    def english(self, front_adverb: bool = False) -> str:
        """The clause without capital and full stop."""
        plural = self.subject.plural
        group = english_verb(self.verb, self.tense, plural, self.negated)
        if self.modal:
            modal = self.modal[0]
            if modal == "want to" and not plural:
                modal = "wants to"
            group = f"{modal} {self.verb.base}"
        words = [self.subject.english(), group]
        if self.object:
            words.append(self.object.english())
        if self.verb.particle:
            # "puts the coat on", "gets up"
            words.append(self.verb.particle)
        if self.place:
            words += [self.place.english, self.place.phrase.english()]
        if self.adverb:
            words = (
                [self.adverb.english, *words]
                if front_adverb
                else [*words, self.adverb.english]
            )
        return " ".join(words)

    def _parts(self) -> tuple[str, list[str], list[str]]:
        """Finite verb, middle field and what closes the clause."""
        verb, plural = self.verb, self.subject.plural
        head = finite(verb, self.tense, plural)
        if self.modal:
            head = self.modal[2 if plural else 1]
            tail = [f"{verb.prefix}{verb.infinitive}"]
        elif self.tense == "perfect":
            tail = [verb.german_participle]
        else:
            tail = [verb.prefix] if verb.prefix else []
        middle: list[str] = []
        negated = self.negated
        if self.object:
            shown = self.object
            if negated and shown.determiner == "indefinite":
                shown, negated = shown._replace(determiner="no"), False
            middle.append(shown.german("dat" if verb.case == "dat" else "acc"))
        if negated:
            middle.append("nicht")
        if self.place:
            phrase = self.place.phrase.german(self.place.case)
            middle.append(with_preposition(self.place.german, phrase))
        return head, middle, tail

    def german(self, front_adverb: bool = False, inverted: bool = False) -> str:
        """A main clause: the finite verb stands second.

        `inverted` is the order behind a subordinate clause, verb first.
        """
        head, middle, tail = self._parts()
        subject = self.subject.german("nom")
        adverb = [self.adverb.german] if self.adverb else []
        if front_adverb:
            return " ".join([*adverb, head, subject, *middle, *tail])
        first = [head, subject] if inverted else [subject, head]
        return " ".join([*first, *adverb, *middle, *tail])

    def german_subordinate(self) -> str:
        """A subordinate clause: the finite verb stands last, joined to its prefix."""
        head, middle, tail = self._parts()
        if self.verb.prefix and tail == [self.verb.prefix]:
            head, tail = f"{self.verb.prefix}{head}", []
        adverb = [self.adverb.german] if self.adverb else []
        subject = self.subject.german("nom")
        return " ".join([subject, *adverb, *middle, *tail, head])


_WITH_OBJECT = [verb for verb in VERBS if verb.objects]
_WITHOUT_OBJECT = [verb for verb in VERBS if not verb.objects]
_STAYING = [v for v in _WITHOUT_OBJECT if not v.particle and v.auxiliary == "hat"]
_SOCIABLE = [v for v in _STAYING if v.base in ("laugh", "dance", "sing", "work")]
_MODALS = (
    ("can", "kann", "können"),
    ("must", "muss", "müssen"),
    ("want to", "will", "wollen"),
)
# English, German and the kinds of nouns that go with them.
_PLACES = (
    ("in", "in", "building"),
    ("behind", "hinter", "building furniture vehicle"),
    ("in front of", "vor", "building vehicle"),
    ("next to", "neben", "building furniture vehicle person"),
    ("under", "unter", "furniture"),
    ("on", "auf", "furniture"),
    ("with", "mit", "person"),
    ("without", "ohne", "person"),
)
_SAYING = (
    ("knows", "weiß", "know", "wissen"),
    ("says", "sagt", "say", "sagen"),
    ("thinks", "denkt", "think", "denken"),
    ("hopes", "hofft", "hope", "hoffen"),
    ("sees", "sieht", "see", "sehen"),
)
# Reasons that an animal has not to go on, and that are nothing one says of a place.
_TIREDNESS = frozenset(
    """tired hungry thirsty lazy weak sick nervous shy slow exhausted injured frightened
    clumsy fat sleepy old""".split()
)
CROSSING = next(v for v in VERBS if v.base == "cross")
ENTERING = next(v for v in VERBS if v.base == "enter")
ANIMALS = tuple(n for n in NOUNS if n.kind == "animal")
GROUNDS = tuple(n for n in NOUNS if n.kind == "ground")
BUILDINGS = tuple(n for n in NOUNS if n.kind == "building")
SUBJECT_REASONS = tuple(a for a in ADJECTIVES if a.english in _TIREDNESS)


@functools.cache
def place_reasons(noun: Noun) -> tuple[Adjective, ...]:
    """Adjectives that say why a place is not crossed or entered."""
    return tuple(
        a
        for a in ADJECTIVES
        if noun.kind in a.kinds and not a.kinds & {"animal", "thing", "device"}
    )


def _phrase(rng: random.Random, noun: Noun, plain: float = 0.6) -> Phrase:
    """A noun with a random number, determiner and perhaps an adjective."""
    determiners: tuple[Determiner, ...] = ("definite", "indefinite", "this")
    determiner = rng.choices(determiners, (6, 3, 1))[0]
    adjective = rng.choice(_fitting(noun.kind)) if rng.random() > plain else None
    return Phrase(noun, rng.random() < 0.25, determiner, adjective)


def _noun(rng: random.Random, kinds: frozenset[str]) -> Noun:
    """A noun of one of these kinds, each noun equally likely."""
    return rng.choice(_nouns(kinds))


@functools.cache
def _nouns(kinds: frozenset[str]) -> tuple[Noun, ...]:
    """All nouns of these kinds."""
    return tuple(noun for noun in NOUNS if noun.kind in kinds)


@functools.cache
def _fitting(kind: str) -> tuple[Adjective, ...]:
    """Adjectives that describe nouns of a kind."""
    return tuple(a for a in ADJECTIVES if kind in a.kinds)


def _tense(rng: random.Random, verb: Verb, plural: bool, negated: bool) -> Tense:
    """A tense in which the English verb form says which one it is."""
    tenses: tuple[Tense, ...] = ("present", "past", "perfect")
    tense = rng.choices(tenses, (4, 4, 2))[0]
    same = verb.base == verb.past and plural and not negated
    return "present" if same and tense == "past" else tense


def _clause(rng: random.Random, simple: bool = False) -> Clause:
    """A clause with or without an object."""
    verb = rng.choice(_WITH_OBJECT if rng.random() < 0.85 else _WITHOUT_OBJECT)
    subject = _phrase(rng, _noun(rng, verb.subjects), 0.7)
    object_ = None
    if verb.objects:
        object_ = _phrase(rng, _noun(rng, verb.objects), 0.55)
        while object_.noun == subject.noun:
            object_ = _phrase(rng, _noun(rng, verb.objects), 0.55)
    negated = rng.random() < 0.15 and not simple
    tense = _tense(rng, verb, subject.plural, negated)
    if simple:
        return Clause(subject, verb, object_, tense)
    modal = None
    if not negated and rng.random() < 0.15:
        modal, tense = rng.choice(_MODALS), "present"
    adverb = None
    if tense != "perfect" and rng.random() < 0.35:
        adverb = rng.choice([a for a in ADVERBS if tense in a.tenses])
    return Clause(subject, verb, object_, tense, negated, adverb, None, modal)


def _finish(english: str, german: str, *keys: tuple[str, ...]) -> Sentence:
    """Capital letter and full stop."""
    first, second = (f"{t[0].upper()}{t[1:]}." for t in (english, german))
    return Sentence(first, second, keys)


def simple_sentence(rng: random.Random) -> Sentence:
    """One clause; an adverbial may stand first, and German then inverts."""
    clause = _clause(rng)
    front = clause.adverb is not None and rng.random() < 0.5
    return _finish(clause.english(front), clause.german(front), clause.key())


def place_sentence(rng: random.Random) -> Sentence:
    """Somebody does something somewhere: two-way prepositions with the dative."""
    english, german, kinds = rng.choice(_PLACES)
    verb = rng.choice(_STAYING if kinds != "person" else _SOCIABLE)
    subject = _phrase(rng, _noun(rng, verb.subjects), 0.7)
    noun = _noun(rng, frozenset(kinds.split()))
    while noun == subject.noun:
        noun = _noun(rng, frozenset(kinds.split()))
    case: Case = "acc" if german == "ohne" else "dat"
    place = Place(english, german, case, _phrase(rng, noun))
    tense = _tense(rng, verb, subject.plural, False)
    negated = rng.random() < 0.1
    clause = Clause(subject, verb, None, tense, negated, None, place)
    return _finish(clause.english(), clause.german(), clause.key())


def description(rng: random.Random) -> Sentence:
    """Something is, or was, somehow."""
    noun = rng.choice(NOUNS)
    subject = _phrase(rng, noun, 1.0)._replace(determiner="definite")
    adjective = rng.choice(_fitting(noun.kind))
    past, negated = rng.random() < 0.4, rng.random() < 0.2
    english, german = rng.choice((("", ""), ("very ", "sehr "), ("too ", "zu ")))
    is_ = (("was", "were") if past else ("is", "are"))[subject.plural]
    ist = (("war", "waren") if past else ("ist", "sind"))[subject.plural]
    no, nicht = ("not ", "nicht ") if negated else ("", "")
    return _finish(
        f"{subject.english()} {is_} {no}{english}{adjective.english}",
        f"{subject.german('nom')} {ist} {nicht}{german}{adjective.german}",
        (noun.english, "be", adjective.english),
    )


def complex_sentence(rng: random.Random) -> Sentence:
    """Two clauses; the verb of the subordinate one stands last."""
    main, other = _clause(rng, simple=True), _clause(rng, simple=True)
    keys = main.key(), other.key()
    kind = rng.random()
    if kind < 0.35:
        says, sagt, say, sagen = rng.choice(_SAYING)
        subject = _phrase(rng, _noun(rng, frozenset({"person"})), 0.8)
        verbs = (say, sagen) if subject.plural else (says, sagt)
        return _finish(
            f"{subject.english()} {verbs[0]} that {other.english()}",
            f"{subject.german('nom')} {verbs[1]}, dass {other.german_subordinate()}",
            keys[1],
        )
    if kind < 0.6:
        # "When" is "wenn" in the present only.
        main, other = (dataclasses.replace(c, tense="present") for c in (main, other))
        return _finish(
            f"when {other.english()}, {main.english()}",
            f"wenn {other.german_subordinate()}, {main.german(inverted=True)}",
            *keys,
        )
    conjunction, german = rng.choice((("because", "weil"), ("although", "obwohl")))
    return _finish(
        f"{main.english()} {conjunction} {other.english()}",
        f"{main.german()}, {german} {other.german_subordinate()}",
        *keys,
    )


def pronoun_sentence(
    animal: Noun, place: Noun, reason: Adjective, although: bool = False
) -> Sentence:
    """The animal did not cross the place because it was too ...

    What "it" refers to follows from the adjective, and its gender from that noun.
    """
    verb = CROSSING if place.kind == "ground" else ENTERING
    clause = Clause(
        Phrase(animal, False, "definite", None),
        verb,
        Phrase(place, False, "definite", None),
        "past",
        negated=not although,
    )
    referent = animal if reason in SUBJECT_REASONS else place
    conjunction, weil = ("although", "obwohl") if although else ("because", "weil")
    degree, zu = ("very", "sehr") if although else ("too", "zu")
    pronoun = PRONOUNS[referent.gender]
    return _finish(
        f"{clause.english()} {conjunction} it was {degree} {reason.english}",
        f"{clause.german()}, {weil} {pronoun} {zu} {reason.german} war",
        pronoun_key(animal, place, reason),
    )


def pronoun_key(animal: Noun, place: Noun, reason: Adjective) -> tuple[str, ...]:
    """The combination that the pronoun test keeps for itself."""
    return (animal.english, place.english, "it", reason.english)


def random_pronoun_sentence(rng: random.Random) -> Sentence:
    """A `pronoun_sentence` of random words."""
    animal = rng.choice(ANIMALS)
    place = rng.choice(GROUNDS if rng.random() < 0.5 else BUILDINGS)
    reasons = SUBJECT_REASONS if rng.random() < 0.5 else place_reasons(place)
    return pronoun_sentence(animal, place, rng.choice(reasons), rng.random() < 0.25)


_PATTERNS: dict[Callable[[random.Random], Sentence], int] = {
    simple_sentence: 42,
    place_sentence: 10,
    description: 8,
    complex_sentence: 18,
    random_pronoun_sentence: 22,
}


def random_sentence(rng: random.Random) -> Sentence:
    """A sentence of a random pattern."""
    pattern = rng.choices(tuple(_PATTERNS), tuple(_PATTERNS.values()))[0]
    return pattern(rng)
