"""Trains a Transformer: one run, from top to bottom.

    python train.py --config=configs/NAME.py[:VARIANT] --workdir=DIR
                    [--config.train.num_steps=...]

The same command goes on with a run that stopped. Every key of the configuration can be
set with --config.KEY=VALUE; configs/base.py lists them.
"""

import itertools
import logging
import time
from collections.abc import Sequence
from pathlib import Path

from transformer.command_line import (
    ArgumentParser,
    keep_freed_memory,
    load_config,
    log_to_file,
    run_command,
    split_overrides,
)

if __name__ == "__main__":
    keep_freed_memory()  # before JAX is imported: it may start the process again

import jax

from transformer.config import Config
from transformer.data import (
    Corpus,
    ParallelText,
    Position,
    Vocabulary,
    epoch_plan,
    evaluation_batches,
    load_split,
    tokenize,
    training_batches,
)
from transformer.decoding import Translator
from transformer.errors import UserError
from transformer.evaluation import learning_curve, perplexity, score
from transformer.model import parameter_count
from transformer.training import (
    Checkpoints,
    Clock,
    MetricsWriter,
    ProgressLog,
    RunFolder,
    TrainState,
    initial_state,
    make_eval_step,
    make_mesh,
    make_train_step,
    replicated,
)

logger = logging.getLogger("transformer.train")


def main(argv: Sequence[str]) -> None:
    """Reads the command line and runs the training."""
    rest, overrides = split_overrides(argv)
    parser = ArgumentParser(prog="train.py", description=__doc__)
    parser.add_argument("--config", required=True, help="configs/NAME.py[:VARIANT]")
    parser.add_argument("--workdir", required=True, help="the run's folder")
    flags = parser.parse_args(rest)
    config = load_config(flags.config, overrides)
    folder = RunFolder(flags.workdir)
    folder.prepare(config)
    with log_to_file(folder.path / "log.txt"):
        Run(config, folder).train()


class Run:
    """Everything that a run has open."""

    def __init__(self, config: Config, folder: RunFolder):
        """Builds data, compiled steps and state; restores the state if there is one."""
        self.config = config
        self.folder = folder
        texts = {
            name: load_split(config.data, name) for name in ("train", "validation")
        }
        self.vocabulary = _vocabulary(config, folder, texts["train"])
        corpora = {
            name: _corpus(config, folder, self.vocabulary, name, text)
            for name, text in texts.items()
        }
        self.corpus, self.validation = corpora["train"], corpora["validation"]
        self.validation_text = texts["validation"]
        self.mesh = make_mesh()
        vocab_size = len(self.vocabulary)
        self.train_step = make_train_step(config, vocab_size, self.mesh)
        self.eval_step = make_eval_step(config, vocab_size, self.mesh)
        self.checkpoints = Checkpoints(
            folder.checkpoints_path,
            self.vocabulary.fingerprint,
            config.train.keep_last,
            config.train.keep_best,
        )
        self.state, self.position, minutes = self._first_state()
        self.clock = Clock(minutes)
        self.metrics = MetricsWriter(folder, int(self.state.step))
        self._report()

    def _first_state(self) -> tuple[TrainState, Position, float]:
        """State, position in the data and minutes trained: restored, or the start."""
        everywhere = replicated(self.mesh)
        start = initial_state(self.config, len(self.vocabulary))
        if not self.checkpoints.whole(1):
            if steps := self.checkpoints.steps():
                logger.warning(
                    "none of the checkpoints %s is whole: from the start", steps
                )
            return jax.device_put(start, everywhere), Position(0, 0), 0.0
        state, found = self.checkpoints.restore(start, everywhere)
        logger.info("resumed after step %d", found.step)
        return state, found.position, found.metrics["minutes"]

    def _report(self) -> None:
        """Says what will be trained on what."""
        config, data = self.config, self.config.data
        lengths = self.corpus.source_lengths, self.corpus.target_lengths
        plan = epoch_plan(data, config.train.seed, self.position.epoch, *lengths)
        count = parameter_count(config.model, len(self.vocabulary))
        logger.info(
            "model: %s parameters, %s pieces", f"{count:,}", f"{len(self.vocabulary):,}"
        )
        logger.info("plan of an epoch: %s", plan.describe())
        logger.info("devices: %s", ", ".join(map(str, self.mesh.devices.flat)))

    def train(self) -> None:
        """Updates until the last step or minute; saves, whatever ends it."""
        config = self.config.train
        batches = training_batches(
            self.corpus, self.vocabulary, self.config.data, config.seed, self.position
        )
        log = ProgressLog(self.metrics, config, int(self.state.step), self.clock)
        self.saved = (log.step, self.clock.minutes())
        values: dict[str, float] = {}
        try:
            while not log.is_last():
                item = next(batches)
                self.state, metrics = self.train_step(self.state, item.batch)
                self.position = item.position_after
                log.add(metrics)
                values = {}
                if config.validate_every and log.step % config.validate_every == 0:
                    log.settle()
                    values = self._validate(log.step)
                if values or self._is_due(log.step):
                    log.settle()
                    self._save(log.step, values)
            log.settle()
            values = values or self._validate(log.step)
        finally:
            batches.close()
            log.settle_quietly()
            if log.finite and self.saved[0] < log.step:
                self._save(log.step, values)
            self.checkpoints.wait()
            self.metrics.close()
        picture = self.folder.path / "learning_curve.png"
        learning_curve(self.folder.metrics_path, picture)
        logger.info("done: step %d after %.1f minutes", log.step, self.clock.minutes())
        logger.info("learning curve: %s", picture)

    def _is_due(self, step: int) -> bool:
        """Whether steps or minutes since the last checkpoint ask for another."""
        config, (saved_step, saved_at) = self.config.train, self.saved
        steps, minutes = config.checkpoint_every_steps, config.checkpoint_every_minutes
        return bool(steps and step - saved_step >= steps) or bool(
            minutes and self.clock.minutes() - saved_at >= minutes
        )

    def _save(self, step: int, values: dict[str, float]) -> None:
        """Starts a checkpoint; its step's loss has been seen to be finite."""
        values = values | {"minutes": self.clock.minutes()}
        self.checkpoints.save(self.state, self.position, values)
        self.saved = (step, self.clock.minutes())

    def _validate(self, step: int) -> dict[str, float]:
        """Perplexity on the validation pairs, BLEU on the first of them."""
        begin = time.monotonic()
        batches = evaluation_batches(self.validation, self.vocabulary, self.config.data)
        result = perplexity(
            self.eval_step, self.state.params, (batch for _, batch in batches)
        )
        values = {"perplexity": result.perplexity, "nll": result.nll}
        if count := self.config.train.validation_sentences:
            sources = self.validation_text.sources[:count]
            references = self.validation_text.targets[:count]
            params = jax.device_get(self.state.params)
            translator = Translator(self.config, self.vocabulary, params)
            found = [t.text for t in translator.translate(sources)]
            values["bleu"] = score(found, references).bleu.score
            for line in zip(sources, references, found, strict=True):
                logger.info("source: %s | reference: %s | ours: %s", *line)
                break
        self.metrics.write(step, {f"validation/{k}": v for k, v in values.items()})
        shown = ", ".join(f"{name} {value:.2f}" for name, value in values.items())
        seconds = time.monotonic() - begin
        logger.info("step %d: validation %s (%.0f s)", step, shown, seconds)
        return values


def _vocabulary(config: Config, folder: RunFolder, text: ParallelText) -> Vocabulary:
    """The run's vocabulary: its own copy, the one given, or a new one."""
    given = config.data.vocab_model
    if folder.vocabulary_path.exists():
        vocabulary = folder.vocabulary()
        if given and Vocabulary.load(given).fingerprint != vocabulary.fingerprint:
            raise UserError(
                f"{given} is not the vocabulary that the run was started with "
                f"({folder.vocabulary_path})"
            )
        return vocabulary
    if given:
        vocabulary = Vocabulary.load(given)
    else:
        sentences = itertools.chain(text.sources, text.targets)
        vocabulary = Vocabulary.train(sentences, config.data)
    vocabulary.save(folder.vocabulary_path)
    return vocabulary


def _corpus(
    config: Config,
    folder: RunFolder,
    vocabulary: Vocabulary,
    name: str,
    text: ParallelText,
) -> Corpus:
    """A split as piece ids, with a report of what was left out."""
    directory = Path(config.data.cache_dir or folder.path / "cache")
    corpus = tokenize(text, vocabulary, config.data.max_tokens, directory)
    logger.info("%s: %s", name, corpus.report)
    return corpus


if __name__ == "__main__":
    run_command(main)
