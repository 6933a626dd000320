"""Scores a trained run, or two text files.

    python evaluate.py --workdir=DIR [--split=test] [--average=N]
    python evaluate.py --workdir=DIR --source=FILE --reference=FILE
    python evaluate.py --workdir=DIR --sacrebleu=wmt14/full
    python evaluate.py --hypothesis=FILE --reference=FILE
    python evaluate.py --hypothesis=FILE --sacrebleu=wmt14/full --pair=en-de

Translates, scores the raw output against the raw references with sacreBLEU, and prints
the perplexity per subword. The translations are kept in DIR/translations.
"""

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer.command_line import (
    ArgumentParser,
    add_decode_flags,
    decode_settings,
    keep_freed_memory,
    run_command,
)

if __name__ == "__main__":
    keep_freed_memory()  # before JAX is imported: it may start the process again

import jax
from tqdm import tqdm

from transformer.data import (
    ParallelText,
    evaluation_batches,
    load_split,
    read_parallel,
    read_records,
    tokenize,
)
from transformer.data.demo_language import pronoun_correct, pronoun_test
from transformer.decoding import Translator, sentence_attention
from transformer.errors import UserError
from transformer.evaluation import (
    Scores,
    attention_picture,
    perplexity,
    sacrebleu_set,
    score,
)
from transformer.training import RunFolder, make_eval_step, make_mesh
from transformer.training.run_folder import write_whole

logger = logging.getLogger("transformer.evaluate")

_SAMPLES = 5
_PROTOCOL = (
    "detokenised output against raw references by sacreBLEU; the paper's BLEU is of "
    "tokenised text with compounds split, and up to 2 points higher"
)


def main(argv: Sequence[str]) -> None:
    """Reads the command line, evaluates and prints."""
    flags = _parser().parse_args(argv)
    if flags.hypothesis:
        report = score_file(flags)
    elif flags.workdir:
        report = evaluate_run(flags)
    else:
        raise UserError("give --workdir=DIR, or --hypothesis=FILE and --reference=FILE")
    # Bytes, so that the locale has no say.
    text = json.dumps(report) + "\n" if flags.json else _as_text(report)
    sys.stdout.buffer.write(text.encode("utf-8"))


def _parser() -> ArgumentParser:
    """The flags."""
    parser = ArgumentParser(prog="evaluate.py", description=__doc__)
    parser.add_argument("--workdir", help="the run's folder")
    parser.add_argument("--split", help="a split of the run's corpus; default: test")
    parser.add_argument("--source", help="a text file to translate, with --reference")
    parser.add_argument("--reference", help="a text file of reference translations")
    parser.add_argument("--sacrebleu", help="a test set of sacreBLEU: wmt14/full, ...")
    parser.add_argument("--hypothesis", help="a text file of translations to score")
    parser.add_argument("--pair", help="languages of --sacrebleu, as in en-de")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_decode_flags(parser)
    return parser


def score_file(flags: argparse.Namespace) -> dict[str, Any]:
    """Scores a file of translations, whatever made them."""
    if flags.workdir or flags.split or flags.source:
        raise UserError("--hypothesis scores a file: it takes no model and no source")
    if bool(flags.reference) == bool(flags.sacrebleu):
        raise UserError("--hypothesis goes with --reference or with --sacrebleu")
    if flags.sacrebleu:
        if not flags.pair:
            raise UserError("--sacrebleu without a run needs a --pair, as in en-de")
        name = f"{flags.sacrebleu} {flags.pair}"
        references = sacrebleu_set(flags.sacrebleu, flags.pair)[1]
    else:
        name, references = flags.reference, read_records(flags.reference)
    found = read_records(flags.hypothesis)
    return {"test set": name} | _as_report(
        score(found, references, flags.hypothesis, name), len(found)
    )


def evaluate_run(flags: argparse.Namespace) -> dict[str, Any]:
    """Translates a test set with a run's model and scores it."""
    folder = RunFolder(flags.workdir)
    name, text = _test_set(flags, folder)
    if not text.sources:
        raise UserError(f"no segments to score: {text.source_name} is empty")
    translator = Translator.from_run(flags.workdir, flags.step, flags.average)
    translator.decode = decode_settings(flags, translator.config.decode)
    found = [
        translation.text
        for translation in tqdm(
            translator.translate(text.sources),
            total=len(text.sources),
            unit="line",
            desc=name,
            disable=not sys.stderr.isatty(),
        )
    ]
    # Kept first: whatever goes wrong with the scores, the work is not lost.
    output = folder.path / "translations" / f"{name.replace('/', '_')}.txt"
    output.parent.mkdir(exist_ok=True)
    write_whole(output, "".join(f"{line}\n" for line in found).encode("utf-8"))
    logger.info("translations: %s", output)
    report = _origin(name, translator)
    names = str(output), text.target_name
    report |= _as_report(score(found, text.targets, *names), len(found))
    report |= _perplexity(translator, folder, text)
    if translator.config.data.source == "demo":
        report |= _demo_report(translator, folder)
    triples = list(zip(text.sources, text.targets, found, strict=True))
    report["samples"] = [
        {"source": source, "reference": reference, "translation": ours}
        for source, reference, ours in triples[:: -(-len(found) // _SAMPLES)]
    ]
    return report


def _origin(name: str, translator: Translator) -> dict[str, Any]:
    """Which text, which parameters, which search."""
    steps, decode = translator.steps, translator.decode
    return {
        "test set": name,
        "checkpoints": ", ".join(map(str, steps)),
        "beam": decode.beam,
        "alpha": decode.alpha,
    }


def _test_set(flags: argparse.Namespace, folder: RunFolder) -> tuple[str, ParallelText]:
    """What to translate, by the one flag that says so."""
    given = [f for f in ("split", "source", "sacrebleu") if getattr(flags, f)]
    if flags.pair:
        raise UserError("--pair goes with --hypothesis: a run knows its languages")
    if len(given) > 1:
        raise UserError(f"--{given[0]} and --{given[1]} exclude each other")
    if bool(flags.source) != bool(flags.reference):
        raise UserError("--source and --reference go together")
    if flags.source:
        name = Path(flags.source).name
        return name, read_parallel(flags.source, flags.reference)
    data = folder.config().data
    if flags.sacrebleu:
        pair = f"{data.source_language}-{data.target_language}"
        sides = sacrebleu_set(flags.sacrebleu, pair)
        names = f"{flags.sacrebleu}.{pair}.src", f"{flags.sacrebleu}.{pair}.ref"
        return f"{flags.sacrebleu}.{pair}", ParallelText(*sides, *names)
    split = flags.split or "test"
    return split, load_split(data, split)


def _as_report(scores: Scores, segments: int) -> dict[str, Any]:
    """Scores with their signatures."""
    return {
        "segments": segments,
        "protocol": _PROTOCOL,
        "BLEU": scores.bleu.score,
        "BLEU signature": scores.bleu.signature,
        "BLEU lower-cased": scores.bleu_lowercase.score,
        "BLEU lower-cased signature": scores.bleu_lowercase.signature,
        "chrF": scores.chrf.score,
        "chrF signature": scores.chrf.signature,
    }


def _perplexity(
    translator: Translator, folder: RunFolder, text: ParallelText
) -> dict[str, float]:
    """Perplexity of the references, per subword and unsmoothed."""
    vocabulary, config = translator.vocabulary, translator.config
    learned = config.model.positions == "learned"
    limit = config.model.max_positions if learned else None
    corpus = tokenize(text, vocabulary, limit, folder.path / "cache")
    if corpus.report.kept < corpus.report.read:
        logger.warning("perplexity: %s", corpus.report)
    one_device = make_mesh(jax.local_devices()[:1])
    eval_step = make_eval_step(config, len(vocabulary), one_device)
    batches = evaluation_batches(corpus, vocabulary, config.data)
    result = perplexity(eval_step, translator.params, (b for _, b in batches))
    return {"perplexity per subword": result.perplexity}


def _demo_report(translator: Translator, folder: RunFolder) -> dict[str, Any]:
    """What only the demo language can show: pronouns, and where "it" looks."""
    famous = pronoun_test()[0].source
    attention = sentence_attention(translator, famous)
    picture = folder.path / "cross_attention.png"
    attention_picture(
        attention.decoder_cross[-1],
        attention.target,
        attention.source,
        f"Cross-attention, last layer: {attention.text}",
        picture,
    )
    return {
        "pronoun accuracy in %": _pronoun_accuracy(translator),
        "learning curve": str(folder.path / "learning_curve.png"),
        "cross-attention": str(picture),
    }


def _pronoun_accuracy(translator: Translator) -> float:
    """Share of the demo language's contrast sentences with the right pronoun, in %."""
    contrasts = pronoun_test()
    found = translator.translate(contrast.source for contrast in contrasts)
    right = [
        pronoun_correct(contrast, translation.text)
        for contrast, translation in zip(contrasts, found, strict=True)
    ]
    return 100 * sum(right) / len(right)


def _as_text(report: dict[str, Any]) -> str:
    """One line per number, then the samples."""
    lines = []
    for name, value in report.items():
        if name != "samples":
            shown = f"{value:.2f}" if isinstance(value, float) else str(value)
            lines.append(f"{name}: {shown}")
    for sample in report.get("samples", []):
        lines.append("")
        lines += [f"{name + ':':13}{text}" for name, text in sample.items()]
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    run_command(main)
