"""Scores are sacreBLEU's own, on raw text, on complete test sets."""

import logging
import math
import shutil
import subprocess
import sys
import urllib.request

import pytest
import sacrebleu

from transformer.errors import UserError
from transformer.evaluation import sacrebleu_set, score


def test_scores_are_those_of_sacrebleu_on_the_files(tmp_path):
    """The same number as the command line's, also for characters never trained on.

    Elsewhere references went through the vocabulary and unknown marks entered them.
    """
    references = [
        "½ \U0001f680 日本語 the dog…",
        "Das ist ein Test.",
        "Zwei Männer!",
        "",
    ]
    hypotheses = [
        "1⁄2 \U0001f680 日本語 the dog",
        "Das ist der Test.",
        "zwei Männer!",
        "",
    ]
    paths = []
    for name, lines in (("ref", references), ("hyp", hypotheses)):
        paths.append(tmp_path / name)
        paths[-1].write_text("".join(f"{line}\n" for line in lines), "utf-8")
    command = [sys.executable, "-m", "sacrebleu", str(paths[0]), "-i", str(paths[1])]
    command += ["-m", "bleu", "chrf", "-b", "-w", "4"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = score(hypotheses, references)
    for ours, theirs in zip((found.bleu, found.chrf), eval(shown), strict=True):
        assert ours.score == pytest.approx(float(theirs), abs=5e-5)
    assert 0 < found.bleu.score < found.bleu_lowercase.score < 100


def test_signatures_say_how():
    """Case, tokenisation, smoothing and version stand beside the number."""
    found = score(["a b c d"], ["a b c d"])
    version = sacrebleu.__version__
    bleu = f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    assert found.bleu == (pytest.approx(100), bleu)
    assert found.bleu_lowercase.signature == bleu.replace("mixed", "lc")
    chrf = f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}"
    assert found.chrf == (pytest.approx(100), chrf)


def test_empty_hypotheses_keep_their_place():
    """They cost brevity; elsewhere they were dropped and the pairs shifted."""
    references = ["x y z", "the dog bit the man ."]
    found = score(["", "the dog bit the man ."], references)
    assert found.bleu.score == pytest.approx(100 * math.exp(-0.5), abs=0.005)
    assert score(["", ""], references).bleu.score == 0.0


def test_tokenised_text_is_warned_about(caplog):
    """SacreBLEU's warning reaches the log, once."""
    lines = [f"word {number} ." for number in range(150)]
    score(lines, lines)
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    said = [r for r in warnings if "tokenized period" in r.getMessage()]
    assert len(said) == 1


def test_nothing_and_unequal_counts_are_refused():
    """No segments is no score of NaN, and both counts and names are said."""
    with pytest.raises(UserError, match="no segments"):
        score([], [])
    with pytest.raises(UserError, match="my.txt has 3 lines and ref.de has 4"):
        score(["x"] * 3, ["x"] * 4, "my.txt", "ref.de")


@pytest.mark.parametrize("counts", [(3003, 2737), (2737, 3003)])
def test_the_two_sizes_of_newstest2014_are_explained(counts):
    """Elsewhere "wmt14" turned out to be the filtered set by a bare length error."""
    with pytest.raises(UserError, match=r"3,003 .* wmt14/full and 2,737 .* wmt14"):
        score(["x"] * counts[0], ["x"] * counts[1])


@pytest.fixture
def cache(shared_data, monkeypatch):
    """The cached test sets, in the place of sacreBLEU's own cache."""
    root = shared_data / "newstest" / "sacrebleu_cache"
    point_at(monkeypatch, root)
    return root


def point_at(monkeypatch, root) -> None:
    """Moves sacreBLEU's cache, and forbids the network."""

    def no_network(*arguments, **settings):
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    for name in ("wmt14/full", "wmt14", "wmt13", "multi30k/2016"):
        dataset = sacrebleu.DATASETS[name]
        monkeypatch.setattr(dataset, "_outdir", str(root / name))
        monkeypatch.setattr(dataset, "_rawdir", str(root / name / "raw"))


SETS = [("wmt14/full", "en-de", 3003), ("wmt14", "en-de", 2737)]
SETS += [("wmt14/full", "fr-en", 3003), ("wmt13", "en-de", 3000)]
SETS += [("multi30k/2016", "en-de", 1000)]


@pytest.mark.parametrize(("name", "pair", "count"), SETS)
def test_cached_sets_need_no_network(cache, name, pair, count):
    """Sources and references, raw and complete."""
    sources, references = sacrebleu_set(name, pair)
    assert len(sources) == len(references) == count
    path = cache / name / f"{name.replace('/', '_')}.{pair}.ref"
    assert references == path.read_text("utf-8").split("\n")[:-1]


def test_a_truncated_set_is_refused(cache, monkeypatch, tmp_path):
    """A partial download is not scored as if it were whole, whichever file it cut.

    Elsewhere 154 of 2,999 lines in the cache gave a plausible score.
    """
    for cut in ("ref", "src"):
        root = tmp_path / cut
        shutil.copytree(cache / "wmt14", root / "wmt14")
        path = root / "wmt14" / "full" / f"wmt14_full.en-de.{cut}"
        path.chmod(0o644)
        path.write_bytes(b"".join(path.read_bytes().splitlines(True)[:154]))
        point_at(monkeypatch, root)
        with pytest.raises(UserError, match=rf"3,003 segments, but .*{cut} has 154:"):
            sacrebleu_set("wmt14/full", "en-de")


def test_without_a_network_one_sentence_says_what_to_do(monkeypatch, tmp_path):
    """Not urllib's traceback at the end of a run."""
    point_at(monkeypatch, tmp_path)
    with pytest.raises(UserError, match=r"no network .* SACREBLEU=.* --source="):
        sacrebleu_set("wmt14", "en-de")


def test_unknown_sets_and_pairs_are_refused():
    """The sentence names what there is."""
    with pytest.raises(UserError, match="no test set 'wmt1914'"):
        sacrebleu_set("wmt1914", "en-de")
    with pytest.raises(UserError, match="no pair 'en-xx', but .*en-de"):
        sacrebleu_set("wmt14", "en-xx")
