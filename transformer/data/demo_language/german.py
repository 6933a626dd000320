"""German and English inflection of phrases."""

from typing import Literal, NamedTuple

from transformer.data.demo_language.lexicon import Adjective, Noun, Verb

Case = Literal["nom", "acc", "dat"]
Determiner = Literal["definite", "indefinite", "this", "no"]
Tense = Literal["present", "past", "perfect"]

# By case, for masculine, feminine, neuter and plural.
_ARTICLES: dict[str, dict[str, str]] = {
    "definite": {
        "nom": "der die das die",
        "acc": "den die das die",
        "dat": "dem der dem den",
    },
    "this": {
        "nom": "dieser diese dieses diese",
        "acc": "diesen diese dieses diese",
        "dat": "diesem dieser diesem diesen",
    },
    "indefinite": {
        "nom": "ein eine ein -",
        "acc": "einen eine ein -",
        "dat": "einem einer einem -",
    },
    "no": {
        "nom": "kein keine kein keine",
        "acc": "keinen keine kein keine",
        "dat": "keinem keiner keinem keinen",
    },
}
_WEAK = {"nom": "e e e en", "acc": "en e e en", "dat": "en en en en"}
_MIXED = {"nom": "er e es en", "acc": "en e es en", "dat": "en en en en"}
_STRONG_PLURAL = {"nom": "e", "acc": "e", "dat": "en"}
_COLUMNS = {"m": 0, "f": 1, "n": 2, "pl": 3}
_CONTRACTIONS = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
    "von dem": "vom",
    "bei dem": "beim",
}
PRONOUNS = {"m": "er", "f": "sie", "n": "es"}


class Phrase(NamedTuple):
    """A noun phrase in both languages."""

    noun: Noun
    plural: bool
    determiner: Determiner
    adjective: Adjective | None

    @property
    def column(self) -> int:
        """Gender, or plural, as a column of the tables."""
        return _COLUMNS["pl" if self.plural else self.noun.gender]

    def german(self, case: Case) -> str:
        """Article, adjective and noun in a case."""
        article = _ARTICLES[self.determiner][case].split()[self.column]
        words = [] if article == "-" else [article]
        if self.adjective:
            words.append(self.adjective.stem + self._ending(case))
        return " ".join([*words, self._noun(case)])

    def _ending(self, case: Case) -> str:
        """Weak after der and dieser, mixed after ein and kein, strong without."""
        if self.determiner in ("definite", "this"):
            return _WEAK[case].split()[self.column]
        if self.plural and self.determiner == "indefinite":
            return _STRONG_PLURAL[case]
        return _MIXED[case].split()[self.column]

    def _noun(self, case: Case) -> str:
        """The noun; dative plurals end in -n unless they end in -n or -s already."""
        if self.plural:
            word = self.noun.german_plural
            return word if case != "dat" or word[-1] in "ns" else f"{word}n"
        if self.noun.weak and case != "nom":
            return self.noun.german_plural
        return self.noun.german

    def english(self) -> str:
        """Article, adjective and noun."""
        noun = self.noun.english_plural if self.plural else self.noun.english
        words = [self.adjective.english, noun] if self.adjective else [noun]
        if self.determiner == "definite":
            return " ".join(["the", *words])
        if self.determiner == "this":
            return " ".join(["these" if self.plural else "this", *words])
        if self.plural:
            return " ".join(words)
        return " ".join(["an" if takes_an(words[0]) else "a", *words])


def takes_an(word: str) -> bool:
    """Whether the word begins with a vowel sound."""
    return word == "honest" or word[0] in "aeiou"


def with_preposition(preposition: str, phrase: str) -> str:
    """Joins them, contracting where German does (in dem: im)."""
    article, space, rest = phrase.partition(" ")
    joined = _CONTRACTIONS.get(f"{preposition} {article}")
    return f"{joined}{space}{rest}" if joined else f"{preposition} {phrase}"


def finite(verb: Verb, tense: Tense, plural: bool) -> str:
    """The verb, or in the perfect its auxiliary, in the third person."""
    if tense == "present":
        return verb.infinitive if plural else verb.german_third
    if tense == "past":
        return plural_preterite(verb.preterite) if plural else verb.preterite
    return {"hat": "haben", "ist": "sind"}[verb.auxiliary] if plural else verb.auxiliary


def plural_preterite(singular: str) -> str:
    """Adds -n after e, else -en."""
    return f"{singular}n" if singular.endswith("e") else f"{singular}en"


def english_verb(verb: Verb, tense: Tense, plural: bool, negated: bool) -> str:
    """The verb group in the third person, without its particle."""
    if tense == "perfect":
        have = "have" if plural else "has"
        return (
            f"{have} not {verb.participle}" if negated else f"{have} {verb.participle}"
        )
    if negated:
        do = "did" if tense == "past" else "do" if plural else "does"
        return f"{do} not {verb.base}"
    if tense == "past":
        return verb.past
    return verb.base if plural else verb.third
