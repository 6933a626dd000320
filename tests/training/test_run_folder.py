"""Laws of a run's folder: it is made, read back, and never becomes another run's."""

import dataclasses
from pathlib import Path

import pytest

from transformer.config import Config
from transformer.errors import UserError
from transformer.training import RunFolder
from transformer.training.run_folder import write_whole


def with_values(config: Config, **values: object) -> Config:
    """The configuration with other values: `model__num_heads=4`."""
    for key, value in values.items():
        section, name = key.split("__")
        part = dataclasses.replace(getattr(config, section), **{name: value})
        config = dataclasses.replace(config, **{section: part})
    return config


CHOICES = {
    "decode.top_p": 0.5,
    "model.positions": "learned",
    "model.norm": "pre",
    "model.dtype": "bfloat16",
    "model.attention": "dot_product",
    "data.source": "demo",
    "data.plan": "pack",
}


def other_value(key: str, value: object) -> object:
    """Some other value that the key may have by its type."""
    if key in CHOICES:
        return CHOICES[key]
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return (*value, 1000)
    return "another" if isinstance(value, str) else value + 1  # type: ignore[operator]


FREE = {
    *("data.cache_dir", "data.num_threads", "data.num_workers", "data.prefetch"),
    *("data.tfds_dir", "data.tfds_manual_dir", "data.vocab_model"),
    *("train.checkpoint_every_minutes", "train.checkpoint_every_steps"),
    *("train.keep_best", "train.keep_last", "train.log_every", "train.max_minutes"),
    *("train.num_steps", "train.validate_every", "train.validation_sentences"),
    *("decode.beam", "decode.alpha", "decode.max_extra_tokens", "decode.min_length"),
    *("decode.no_repeat_ngram", "decode.temperature", "decode.top_k", "decode.top_p"),
    "decode.seed",
    *("decode.max_source_tokens", "decode.tokens_per_batch"),
}


def test_folder_keeps_the_configuration(tmp_path: Path, tiny_config: Config) -> None:
    """A later command needs the folder and no model flags."""
    folder = RunFolder(tmp_path / "a" / "run")
    folder.prepare(tiny_config)
    assert RunFolder(tmp_path / "a" / "run").config() == tiny_config
    folder.prepare(tiny_config)
    assert folder.config() == tiny_config


def test_every_difference_is_named(tmp_path: Path, tiny_config: Config) -> None:
    """All of them, with both values; also heads, which change no array's shape.

    Elsewhere a model with other heads, widths or layers was loaded without a word.
    """
    folder = RunFolder(tmp_path)
    folder.prepare(tiny_config)
    other = with_values(
        tiny_config,
        model__num_heads=4,
        model__positions="learned",
        data__max_tokens=32,
        train__seed=5,
    )
    with pytest.raises(UserError) as caught:
        folder.prepare(other)
    message = str(caught.value)
    assert str(tmp_path) in message
    assert "model.num_heads: saved 2, given 4" in message
    assert "model.positions: saved 'sinusoidal', given 'learned'" in message
    assert "data.max_tokens: saved 64, given 32" in message
    assert "train.seed: saved 0, given 5" in message
    assert folder.config() == tiny_config


def test_each_key_is_either_checked_or_harmless(
    tmp_path: Path, tiny_config: Config
) -> None:
    """Only keys that alter neither the model nor its batches or path may change."""
    folder = RunFolder(tmp_path)
    folder.prepare(tiny_config)
    for key, value in tiny_config.flatten().items():
        other = with_values(
            tiny_config, **{key.replace(".", "__", 1): other_value(key, value)}
        )
        assert other.flatten()[key] != value
        if key in FREE:
            folder.prepare(other)
            folder.prepare(tiny_config)
        else:
            with pytest.raises(UserError, match=f"{key}: saved "):
                folder.prepare(other)


def test_harmless_changes_are_written_down(tmp_path: Path, tiny_config: Config) -> None:
    """A run made longer says so in its folder."""
    folder = RunFolder(tmp_path)
    folder.prepare(tiny_config)
    folder.prepare(with_values(tiny_config, train__num_steps=99, decode__beam=7))
    assert folder.config().train.num_steps == 99
    assert folder.config().decode.beam == 7


@pytest.mark.parametrize("text", [None, "", '{"model": {', "[1]", "{}"])
def test_a_folder_without_a_readable_configuration_is_named(
    tmp_path: Path, text: str | None
) -> None:
    """No folder, no file, a file cut off: one sentence that says which."""
    folder = RunFolder(tmp_path / "run")
    if text is not None:
        folder.path.mkdir()
        folder.config_path.write_text(text)
    with pytest.raises(UserError) as caught:
        folder.config()
    assert "config" in str(caught.value)
    if text in (None, "", '{"model": {', "[1]"):
        assert str(folder.config_path) in str(caught.value)


def test_a_folder_that_cannot_be_written_is_the_users_mistake(
    tmp_path: Path, tiny_config: Config
) -> None:
    """A file stands where the folder shall be."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="workdir"):
        RunFolder(tmp_path / "file" / "run").prepare(tiny_config)


def test_missing_vocabulary_is_named(tmp_path: Path) -> None:
    """A run that was stopped before its vocabulary was made is no model yet."""
    with pytest.raises(UserError, match="vocab.model"):
        RunFolder(tmp_path).vocabulary()


def test_write_whole_leaves_the_old_file_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills up costs the new content, never the old, and leaves no rest."""
    path = tmp_path / "file"
    write_whole(path, b"old")

    def fail(self: Path, content: bytes) -> int:
        with open(self, "wb") as stream:
            stream.write(content[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
