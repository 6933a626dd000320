"""Where sentence pairs come from: text files, TFDS sets, the demo language."""

import contextlib
import http.client
import importlib.util
import logging
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tqdm import tqdm

from transformer.config import DataConfig
from transformer.data.text import ParallelText, read_parallel
from transformer.errors import UserError

logger = logging.getLogger(__name__)

_NETWORK_SECONDS = 5
_RETRIES = 2  # TFDS makes ten, which take minutes where there is no network
_ADVICE = (
    "set --config.data.tfds_dir=DIR to where it is prepared as ArrayRecord, or give "
    "files already downloaded with --config.data.tfds_manual_dir=DIR, or train on two "
    "text files with --config.data.source=text"
)


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
            f"split {split!r}: there are only train, validation and test where "
            f"data.source is {config.source!r}"
        )
    if config.source == "demo":
        from transformer.data.demo_language import demo_corpus

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
    if not builder.data_path.exists():
        _prepare(builder, config)
    splits = list(builder.info.splits)
    if split == "test" and split not in splits and splits:
        # Multi30k has several test sets; the first is the one that papers report.
        split = next((name for name in splits if name.startswith("test")), split)
    if split not in splits:
        raise UserError(f"split {split!r}: {config.tfds_name} has {', '.join(splits)}")
    one, other = (
        f"{config.tfds_name}:{split}.{language}"
        for language in (config.source_language, config.target_language)
    )
    try:
        sources, targets = _read(builder.as_data_source(split), config, [one, other])
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"{config.tfds_name} in {builder.data_path} cannot be read "
            f"({_first_line(error)}): delete that folder to prepare it again"
        ) from error
    return ParallelText(sources, targets, one, other)


def _read(
    examples: Any, config: DataConfig, names: list[str]
) -> tuple[list[str], list[str]]:
    """Both sides of all examples, in their order; TFDS hands texts out as bytes."""
    sides: tuple[list[str], list[str]] = ([], [])
    keys = (config.source_language, config.target_language)
    for begin in tqdm(
        range(0, len(examples), 1000),
        desc="reading",
        unit="k examples",
        disable=not sys.stderr.isatty() or len(examples) < 100_000,
    ):
        some = examples.__getitems__(range(begin, min(begin + 1000, len(examples))))
        for side, key, name in zip(sides, keys, names, strict=True):
            try:
                for example in some:
                    text = example[key]
                    side.append(text.decode("utf-8") if type(text) is bytes else text)
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{name}, example {len(side) + 1}: the text is not UTF-8"
                ) from error
    return sides


def _builder(config: DataConfig) -> Any:
    """The set's builder, its files in ArrayRecord, which needs no TensorFlow."""
    import tensorflow_datasets as tfds

    # TFDS registers its own sets one package after another and stops without a word at
    # the first that lacks a dependency: ask for the translation sets alone.
    import tensorflow_datasets.translate  # noqa: F401

    settings: dict[str, Any] = {"file_format": "array_record"}
    if config.tfds_dir:
        settings["data_dir"] = config.tfds_dir
    try:
        if config.tfds_name == "multi30k":
            from transformer.data.multi30k import Multi30k

            return Multi30k(**settings)
        return tfds.builder(config.tfds_name, **settings)
    except (tfds.core.registered.DatasetNotFoundError, ValueError) as error:
        reason = _first_line(error)
        if "File format is already set" in reason:
            reason = "it is prepared in another format; " + _ADVICE
        raise UserError(f"data.tfds_name={config.tfds_name!r}: {reason}") from error


def _prepare(builder: Any, config: DataConfig) -> None:
    """Downloads and writes the set; a folder under its name appears only when whole."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download import downloader, extractor
    from tensorflow_datasets.core.download.download_manager import (
        NonMatchingChecksumError,
    )

    name, manual = config.tfds_name, config.tfds_manual_dir
    if manual and not Path(manual).is_dir():
        raise UserError(f"data.tfds_manual_dir={manual!r} is not a folder")
    if _needs_tensorflow(builder):
        raise UserError(
            f"{name} is not in {builder.data_dir}, and TFDS needs TensorFlow to unpack "
            f"its archives: prepare it where that is installed, with "
            f"file_format='array_record', and {_ADVICE}"
        )
    if not manual and not _network_reaches(builder.url_infos or ()):
        raise UserError(
            f"{name} is not in {builder.data_dir} and there is no network to download "
            f"it: {_ADVICE}"
        )
    if not sys.stderr.isatty():
        tfds.disable_progress_bar()
    logger.info("preparing %s in %s", name, builder.data_dir)
    downloader.MAX_RETRIES = _RETRIES
    settings = tfds.download.DownloadConfig(
        manual_dir=manual or None, try_download_gcs=False
    )
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for results
            builder.download_and_prepare(
                file_format="array_record", download_config=settings
            )
    except (
        OSError,
        RuntimeError,
        AssertionError,  # how TFDS says that two sides of a corpus differ
        tfds.download.DownloadError,
        extractor.ExtractError,
        NonMatchingChecksumError,
    ) as error:
        raise UserError(
            f"{name} could not be prepared: {_first_line(error)}; {_ADVICE}"
        ) from error


def _needs_tensorflow(builder: Any) -> bool:
    """Whether preparing the set would fail, after its download, for lack of TensorFlow.

    Every translation set that ships with TFDS is unpacked by TFDS's extractor.
    """
    ships_with_tfds = type(builder).__module__.startswith("tensorflow_datasets.")
    return ships_with_tfds and importlib.util.find_spec("tensorflow") is None


def _network_reaches(urls: Iterable[str]) -> bool:
    """Whether a host of these URLs answers at all, through the proxy if there is one.

    True if there are no URLs: such a builder downloads for itself.
    """
    opener = urllib.request.build_opener()  # with the proxies of this moment
    hosts = sorted({urlsplit(url)[:2] for url in urls})
    for scheme, host in hosts:
        request = urllib.request.Request(f"{scheme}://{host}/", method="HEAD")
        try:
            opener.open(request, timeout=_NETWORK_SECONDS).close()
            return True
        except urllib.error.HTTPError:
            return True  # an answer, if not a kind one
        except (OSError, http.client.HTTPException):
            continue
    return not hosts


def _first_line(error: BaseException) -> str:
    """An error's message without the pages that TFDS adds."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
