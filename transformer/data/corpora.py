"""Where sentence pairs come from: text files, TFDS sets, the demo language."""

import logging
import socket
from pathlib import Path
from typing import Any

from transformer.config import DataConfig
from transformer.data.demo_language import demo_corpus
from transformer.data.text import ParallelText, read_parallel
from transformer.errors import UserError

logger = logging.getLogger(__name__)

_NETWORK_SECONDS = 5


def load_split(config: DataConfig, split: str) -> ParallelText:
    """The sentence pairs of a split, as they are, in their order.

    Splits are "train", "validation" and "test"; a TFDS set may have others.

    Raises:
      UserError: the split does not exist, its files cannot be read or differ in length,
        or the set is neither prepared nor to be had.
    """
    if config.source == "tfds":
        return _tfds_split(config, split)
    if split not in ("train", "validation", "test"):
        raise UserError(
            f"split {split!r}: data.source={config.source!r} has train, validation, test"
        )
    if config.source == "demo":
        return demo_corpus(split)
    paths = []
    for side in ("source", "target"):
        paths.append(getattr(config, f"{split}_{side}"))
        if not paths[-1]:
            raise UserError(
                f"data.{split}_{side} is empty: set --config.data.{split}_{side}=FILE"
            )
    return read_parallel(*paths)


def _tfds_split(config: DataConfig, split: str) -> ParallelText:
    """A split of a TFDS translation set, prepared first if need be."""
    builder = _builder(config)
    languages = tuple(builder.info.features)
    for key in ("source_language", "target_language"):
        if (language := getattr(config, key)) not in languages:
            names = ", ".join(languages)
            raise UserError(
                f"data.{key} is {language!r}, but {config.tfds_name} has {names}"
            )
    _prepare(builder, config)
    splits = list(builder.info.splits)
    if split == "test" and split not in splits and splits:
        # Multi30k has several test sets; the first is the one that papers report.
        split = next((name for name in splits if name.startswith("test")), split)
    if split not in splits:
        raise UserError(
            f"split {split!r}: {config.tfds_name} has {', '.join(splits)}"
        )
    source = builder.as_data_source(split)
    sides: tuple[list[str], list[str]] = ([], [])
    keys = (config.source_language, config.target_language)
    for begin in range(0, len(source), 1000):
        for example in source.__getitems__(
            range(begin, min(begin + 1000, len(source)))
        ):
            for side, key in zip(sides, keys, strict=True):
                value = example[key]
                side.append(value.decode("utf-8") if isinstance(value, bytes) else value)
    names = [f"{config.tfds_name}:{split}.{key}" for key in keys]
    return ParallelText(*sides, *names)


def _builder(config: DataConfig) -> Any:
    """The set's builder, its files in ArrayRecord, which needs no TensorFlow."""
    import tensorflow_datasets as tfds

    # TFDS registers its own sets one package after another and stops without a word at
    # the first that lacks a dependency: ask for the translation sets alone.
    import tensorflow_datasets.translate  # noqa: F401

    settings: dict[str, Any] = {"file_format": "array_record"}
    if config.tfds_dir:
        settings["data_dir"] = config.tfds_dir
    if config.tfds_name == "multi30k":
        from transformer.data.multi30k import Multi30k

        return Multi30k(**settings)
    try:
        return tfds.builder(config.tfds_name, **settings)
    except (tfds.core.registered.DatasetNotFoundError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"data.tfds_name={config.tfds_name!r}: {reason}") from error


def _prepare(builder: Any, config: DataConfig) -> None:
    """Downloads and writes the set where that has not been done."""
    import tensorflow_datasets as tfds

    if builder.data_path.exists():
        return
    manual = config.tfds_manual_dir
    if manual and not Path(manual).is_dir():
        raise UserError(f"data.tfds_manual_dir={manual!r} is not a folder")
    advice = (
        "prepare it on a machine with a network and set --config.data.tfds_dir=DIR, "
        "or give files already downloaded with --config.data.tfds_manual_dir=DIR, "
        "or train on two text files with --config.data.source=text"
    )
    if not manual and not _network_reaches("github.com", "www.statmt.org"):
        raise UserError(
            f"{config.tfds_name} is not in {builder.data_dir} and there is no network "
            f"to download it: {advice}"
        )
    logger.info("preparing %s in %s", config.tfds_name, builder.data_dir)
    settings = tfds.download.DownloadConfig(manual_dir=manual or None)
    try:
        builder.download_and_prepare(
            file_format="array_record", download_config=settings
        )
    except UserError:
        raise
    except ModuleNotFoundError as error:
        raise UserError(
            f"{config.tfds_name} can only be prepared where TensorFlow is installed "
            f"({error}); {advice}"
        ) from error
    except (OSError, RuntimeError, tfds.download.DownloadError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"{config.tfds_name} could not be prepared: {reason}; {advice}"
        ) from error


def _network_reaches(*hosts: str) -> bool:
    """Whether one of these hosts answers: seconds instead of minutes of retries."""
    for host in hosts:
        try:
            socket.create_connection((host, 443), timeout=_NETWORK_SECONDS).close()
            return True
        except OSError:
            continue
    return False
