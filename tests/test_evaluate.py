"""What evaluate.py does with a run's folder and with files."""

import json

import pytest

from transformer.errors import UserError


def test_evaluating_a_run_prints_scores_and_keeps_the_output(
    evaluate, run, capfdbinary
):
    """Scores with signatures, perplexity, protocol, samples; the output in a file.

    Sources and references are raw, and blank lines keep their place.
    """
    evaluate.main([f"--workdir={run}", "--json"])
    report = json.loads(capfdbinary.readouterr().out)
    assert report["test set"] == "test" and report["segments"] == 4
    assert report["checkpoints"] == "7"
    assert "tok:13a" in report["BLEU signature"]
    assert "case:lc" in report["BLEU lower-cased signature"]
    assert "sacreBLEU" in report["protocol"]
    assert 1 < report["perplexity per subword"] < 1e6
    kept = (run / "translations" / "test.txt").read_text("utf-8").split("\n")
    assert len(kept) == 5 and kept[1] == kept[4] == ""
    samples = report["samples"]
    assert [sample["source"] for sample in samples] == (
        (run / "test.en").read_text("utf-8").split("\n")[:4]
    )
    assert [sample["translation"] for sample in samples] == kept[:4]
    flags = [f"--source={run / 'test.en'}", f"--reference={run / 'test.de'}"]
    evaluate.main([f"--workdir={run}", *flags])
    shown = capfdbinary.readouterr().out.decode("utf-8")
    assert f"BLEU: {report['BLEU']:.2f}\n" in shown and "Männer" in shown
    assert (run / "translations" / "test.en.txt").read_text("utf-8").split("\n") == kept


def test_files_are_scored_without_a_model(evaluate, tmp_path, capfdbinary):
    """One byte-order mark, CRLF or a missing last LF change no score."""
    reference, hypothesis = tmp_path / "ref", tmp_path / "hyp"
    flags = [f"--hypothesis={hypothesis}", f"--reference={reference}"]
    lines = "Ein Hund sieht die Katze.\nzwei Männer\u2028gehen nach Hause\n"
    forms = [lines, "\ufeff" + lines, lines.replace("\n", "\r\n"), lines[:-1]]
    reference.write_bytes(lines.encode("utf-8"))
    for form in forms:
        hypothesis.write_bytes(form.encode("utf-8"))
        evaluate.main([*flags, "--json"])
        report = json.loads(capfdbinary.readouterr().out)
        assert (report["BLEU"], report["segments"]) == (pytest.approx(100), 2)


def test_files_that_cannot_be_scored_are_refused(evaluate, tmp_path):
    """Unequal, empty or not UTF-8: with names, counts and lines."""
    reference, hypothesis = tmp_path / "ref", tmp_path / "hyp"
    flags = [f"--hypothesis={hypothesis}", f"--reference={reference}"]
    reference.write_text("a\nb\nc\nd\n")
    hypothesis.write_text("a\nb\nc\n")
    with pytest.raises(UserError, match="hyp has 3 lines and .*ref has 4"):
        evaluate.main(flags)
    hypothesis.write_bytes(b"a\nb\ncaf\xe9\nd\n")
    with pytest.raises(UserError, match="hyp, line 3"):
        evaluate.main(flags)
    hypothesis.write_text("")
    reference.write_text("")
    with pytest.raises(UserError, match="no segments"):
        evaluate.main(flags)


def test_contradicting_flags_are_refused(evaluate, run, tmp_path):
    """What is to be scored is said once."""
    for flags in (
        [],
        ["--hypothesis=x"],
        ["--hypothesis=x", "--reference=y", "--sacrebleu=wmt13"],
        ["--hypothesis=x", "--sacrebleu=wmt13"],
        [f"--workdir={run}", "--source=x"],
        [f"--workdir={run}", "--source=x", "--reference=y", "--split=test"],
        [f"--workdir={run}", "--hypothesis=x", "--reference=y"],
        [f"--workdir={tmp_path}"],
        [f"--workdir={run}", "--spilt=test"],
    ):
        with pytest.raises(UserError):
            evaluate.main(flags)
