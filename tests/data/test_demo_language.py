"""Laws of the demo language: real grammar, no leakage between splits."""

import re
from collections import Counter

import pytest

from transformer.data.demo_language import (
    _corpora,
    demo_corpus,
    lexicon_size,
    pronoun_correct,
    pronoun_test,
)
from transformer.data.demo_language.german import Phrase, takes_an, with_preposition
from transformer.data.demo_language.grammar import Clause
from transformer.data.demo_language.lexicon import ADJECTIVES, NOUNS, VERBS
from transformer.errors import UserError


def noun(name: str):
    """A noun by its English singular."""
    return next(n for n in NOUNS if n.english == name)


def verb(base: str, particle: str = ""):
    """A verb by its English base and particle."""
    return next(v for v in VERBS if (v.base, v.particle) == (base, particle))


def adjective(name: str):
    """An adjective by its English form."""
    return next(a for a in ADJECTIVES if a.english == name)


def the(name: str, plural: bool = False) -> Phrase:
    """A noun with its definite article."""
    return Phrase(noun(name), plural, "definite", None)


def test_sizes():
    """Large enough a vocabulary, corpus and tests."""
    assert lexicon_size() >= 600
    train, test = demo_corpus("train"), demo_corpus("test")
    assert len(set(zip(train.sources, train.targets, strict=True))) >= 30_000
    assert len(test.sources) == 300
    assert len(pronoun_test()) >= 400


def test_one_translation_for_each_sentence_and_none_shared():
    """The language is a function, and no sentence of a test is in training."""
    seen: dict[str, str] = {}
    for split in ("train", "validation", "test"):
        text = demo_corpus(split)
        for english, german in zip(text.sources, text.targets, strict=True):
            assert english not in seen
            seen[english] = german
    sides = [set(demo_corpus(s).targets) for s in ("train", "validation", "test")]
    assert not sides[0] & sides[1]
    assert not sides[0] & sides[2]
    assert not {c.source for c in pronoun_test()} & set(seen)


def test_every_test_word_occurs_in_training():
    """What is new in the test is the combination."""
    train = demo_corpus("train")
    known = [set(re.findall(r"\w+", " ".join(side).lower())) for side in train[:2]]
    test = demo_corpus("test")
    contrasts = pronoun_test()
    for side, words in enumerate(known):
        lines = [*test[side], *(c[side] for c in contrasts)]
        assert set(re.findall(r"\w+", " ".join(lines).lower())) <= words


def test_no_combination_of_a_test_sentence_occurs_in_training():
    """Every clause of a test sentence combines its words for the first time."""
    keys = {
        split: {key for sentence in sentences for key in sentence.keys}
        for split, sentences in _corpora().items()
    }
    assert not keys["train"] & keys["test"]
    assert not keys["train"] & keys["validation"]


def test_the_famous_sentence():
    """Both readings, with their pronouns."""
    tired, wide = pronoun_test()[:2]
    assert tired.source == (
        "The animal did not cross the street because it was too tired."
    )
    assert tired.target == (
        "Das Tier überquerte die Straße nicht, weil es zu müde war."
    )
    assert wide.source.endswith("because it was too wide.")
    assert wide.target.endswith("weil sie zu breit war.")
    assert (tired.antecedent, wide.antecedent) == ("das Tier", "die Straße")


def test_contrasts_differ_in_the_adjective_and_the_pronoun():
    """Two readings of the same nouns; a pronoun agrees with what it refers to."""
    contrasts = pronoun_test()
    genders = {"der": "er", "die": "sie", "das": "es"}
    for one, other in zip(contrasts[::2], contrasts[1::2], strict=True):
        assert one.source.rsplit(" ", 1)[0] == other.source.rsplit(" ", 1)[0]
        assert one.pronoun != other.pronoun
        for contrast in (one, other):
            assert genders[contrast.antecedent.split()[0]] == contrast.pronoun
            assert pronoun_correct(contrast, contrast.target)
        assert not pronoun_correct(one, other.target)
        assert not pronoun_correct(one, "Das Tier.")
    assert min(Counter(c.pronoun for c in contrasts).values()) > 100


def test_contrast_triples_are_not_in_training():
    """Neither with "because" nor with "although" does training show them."""
    pattern = re.compile(
        r"^The (.+?) (?:did not cross|crossed|did not enter|entered) the (.+?) "
        r"(?:because|although) it was (?:too|very) (\w+)\.$"
    )
    held_out = {pattern.match(c.source).groups() for c in pronoun_test()}
    found = [
        m.groups() for s in demo_corpus("train").sources if (m := pattern.match(s))
    ]
    assert len(found) > 3000
    assert not held_out & set(found)


ENDINGS = {
    ("man", "definite"): "der alte Mann|den alten Mann|dem alten Mann",
    ("woman", "definite"): "die alte Frau|die alte Frau|der alten Frau",
    ("child", "definite"): "das alte Kind|das alte Kind|dem alten Kind",
    ("man", "indefinite"): "ein alter Mann|einen alten Mann|einem alten Mann",
    ("woman", "indefinite"): "eine alte Frau|eine alte Frau|einer alten Frau",
    ("child", "indefinite"): "ein altes Kind|ein altes Kind|einem alten Kind",
    ("man", "no"): "kein alter Mann|keinen alten Mann|keinem alten Mann",
    ("child", "this"): "dieses alte Kind|dieses alte Kind|diesem alten Kind",
    ("boy", "definite"): "der alte Junge|den alten Jungen|dem alten Jungen",
}
PLURALS = {
    ("child", "definite"): "die alten Kinder|die alten Kinder|den alten Kindern",
    ("child", "indefinite"): "alte Kinder|alte Kinder|alten Kindern",
    ("child", "no"): "keine alten Kinder|keine alten Kinder|keinen alten Kindern",
    ("woman", "this"): "diese alten Frauen|diese alten Frauen|diesen alten Frauen",
    ("car", "definite"): "die alten Autos|die alten Autos|den alten Autos",
}


@pytest.mark.parametrize(("table", "plural"), [(ENDINGS, False), (PLURALS, True)])
def test_declension(table, plural):
    """Weak, mixed and strong endings, weak nouns and the dative plural."""
    for (name, determiner), expected in table.items():
        phrase = Phrase(noun(name), plural, determiner, adjective("old"))
        forms = [phrase.german(case) for case in ("nom", "acc", "dat")]
        assert "|".join(forms) == expected


def test_adjectives_that_lose_a_letter():
    """teuer, dunkel and sauer before an ending."""
    for name, english, expected in (
        ("car", "expensive", "ein teures Auto"),
        ("forest", "dark", "ein dunkler Wald"),
        ("apple", "sour", "ein saurer Apfel"),
    ):
        phrase = Phrase(noun(name), False, "indefinite", adjective(english))
        assert phrase.german("nom") == expected


def test_separable_verbs_and_word_order():
    """The prefix stands last, joins in subordinate clauses, and takes -ge-."""
    opening = Clause(the("man"), verb("open"), the("door"), "present")
    assert opening.german() == "der Mann macht die Tür auf"
    assert opening.german(inverted=True) == "macht der Mann die Tür auf"
    assert opening.german_subordinate() == "der Mann die Tür aufmacht"
    perfect = Clause(the("man"), verb("open"), the("door"), "perfect")
    assert perfect.german() == "der Mann hat die Tür aufgemacht"
    assert perfect.german_subordinate() == "der Mann die Tür aufgemacht hat"
    modal = Clause(
        the("man", True),
        verb("open"),
        the("door"),
        "present",
        modal=("can", "kann", "können"),
    )
    assert modal.german() == "die Männer können die Tür aufmachen"
    assert modal.german_subordinate() == "die Männer die Tür aufmachen können"
    assert modal.english() == "the men can open the door"


def test_negation_and_objects():
    """Kein before indefinite objects, nicht behind definite ones; dative verbs."""
    some = Phrase(noun("dog"), False, "indefinite", None)
    negated = Clause(the("man"), verb("see"), some, "present", negated=True)
    assert negated.german() == "der Mann sieht keinen Hund"
    assert negated.english() == "the man does not see a dog"
    helping = Clause(the("man"), verb("help"), the("student"), "past", negated=True)
    assert helping.german() == "der Mann half dem Studenten nicht"
    following = Clause(the("man", True), verb("follow"), the("dog"), "perfect")
    assert following.german() == "die Männer sind dem Hund gefolgt"


@pytest.mark.parametrize(
    ("preposition", "phrase", "joined"),
    [
        ("in", "dem Haus", "im Haus"),
        ("in", "das Haus", "ins Haus"),
        ("zu", "der Schule", "zur Schule"),
        ("in", "der Schule", "in der Schule"),
        ("in", "diesem Haus", "in diesem Haus"),
        ("auf", "dem Tisch", "auf dem Tisch"),
    ],
)
def test_contractions(preposition, phrase, joined):
    """In dem is im, zu der is zur, and nothing else is joined."""
    assert with_preposition(preposition, phrase) == joined


def test_english_articles():
    """The sound decides."""
    assert [takes_an(w) for w in ("apple", "honest", "house")] == [True, True, False]
    for split in ("train", "test"):
        for line in demo_corpus(split).sources:
            assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [bcdfgjklmnpqrstvwxyz]", line)


def test_no_split_of_that_name():
    """The sentence lists the splits."""
    with pytest.raises(UserError, match="train, validation and test"):
        demo_corpus("dev")
