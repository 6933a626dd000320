"""A run's configuration as frozen dataclasses, and the only door into them.

`configs/base.py` holds every key with its meaning; here are the same keys with their
types and the values they may take. Whatever comes from outside (a `ConfigDict`, the
`config.json` of a run's folder) enters through `Config.from_dict`, which is strict: a
missing key, an unknown key, a value of the wrong type or out of range is a `UserError`
that names the key.
"""

import dataclasses
import difflib
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from ml_collections import ConfigDict

from transformer.errors import UserError


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Section 3 and every column of Table 3 that changes the network."""

    num_layers: int
    d_model: int
    d_ff: int
    num_heads: int
    d_k: int
    d_v: int
    dropout: float
    positions: Literal["sinusoidal", "learned"]
    max_positions: int
    tie_embeddings: bool
    norm: Literal["post", "pre"]
    attention_dropout: float
    ffn_dropout: float
    attention_bias: bool
    vocab_rows_multiple: int
    dtype: Literal["float32", "bfloat16"]
    attention: Literal["einsum", "dot_product"]

    def check(self) -> None:
        """Raises `UserError` for the first value that no model can have."""
        for name in ("num_layers", "d_model", "d_ff", "num_heads", "d_k", "d_v"):
            _at_least("model", self, name, 1)
        for name in ("max_positions", "vocab_rows_multiple"):
            _at_least("model", self, name, 1)
        for name in ("dropout", "attention_dropout", "ffn_dropout"):
            _rate("model", self, name)
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise UserError(
                f"model.d_model is {self.d_model}: sinusoidal positions need an even "
                "number, one sine and one cosine per frequency"
            )
        if self.attention == "dot_product" and self.attention_dropout > 0:
            raise UserError(
                "model.attention_dropout needs model.attention='einsum': the fused "
                "dot_product attention has no dropout"
            )
        if self.attention == "dot_product" and self.d_k != self.d_v:
            raise UserError(
                f"model.d_k is {self.d_k} and model.d_v is {self.d_v}: the fused "
                "dot_product attention needs them equal; use model.attention='einsum'"
            )


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Where the sentence pairs come from and how they become batches (section 5.1)."""

    source: Literal["text", "tfds", "demo"]
    source_language: str
    target_language: str
    train_source: str
    train_target: str
    validation_source: str
    validation_target: str
    test_source: str
    test_target: str
    tfds_name: str
    tfds_dir: str
    tfds_manual_dir: str
    cache_dir: str
    vocab_model: str
    vocab_size: int
    vocab_sentences: int
    vocab_max_bytes: int
    max_tokens: int
    plan: Literal["bucket", "pack"]
    tokens_per_batch: int
    rows_multiple: int
    bucket_widths: tuple[int, ...]
    pack_width: int
    num_threads: int
    num_workers: int
    prefetch: int

    def check(self) -> None:
        """Raises `UserError` for the first value that no data pipeline can have."""
        for name in ("vocab_size", "vocab_max_bytes", "max_tokens", "tokens_per_batch"):
            _at_least("data", self, name, 1)
        for name in ("rows_multiple", "pack_width", "num_threads", "prefetch"):
            _at_least("data", self, name, 1)
        for name in ("vocab_sentences", "num_workers"):
            _at_least("data", self, name, 0)
        widths = self.bucket_widths
        if not widths or widths[0] < 1 or list(widths) != sorted(set(widths)):
            raise UserError(
                f"data.bucket_widths is {widths}: it must be positive and rising"
            )
        widest = self.pack_width if self.plan == "pack" else widths[-1]
        if self.max_tokens > widest:
            name = "pack_width" if self.plan == "pack" else "the last of bucket_widths"
            raise UserError(
                f"data.max_tokens is {self.max_tokens}, but {name} is {widest}: "
                "a longest pair must fit into a row"
            )
        if self.source_language == self.target_language:
            raise UserError(
                f"data.source_language and data.target_language are both "
                f"{self.source_language!r}"
            )


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Sections 5.3 and 5.4, and how often a run logs, validates and saves."""

    seed: int
    num_steps: int
    max_minutes: float
    label_smoothing: float
    learning_rate_factor: float
    warmup_steps: int
    adam_b1: float
    adam_b2: float
    adam_eps: float
    accumulation_steps: int
    log_every: int
    validate_every: int
    validation_sentences: int
    checkpoint_every_steps: int
    checkpoint_every_minutes: float
    keep_last: int
    keep_best: int

    def check(self) -> None:
        """Raises `UserError` for the first value that no training run can have."""
        for name in ("num_steps", "accumulation_steps", "log_every", "keep_last"):
            _at_least("train", self, name, 1)
        for name in ("seed", "warmup_steps", "validate_every", "validation_sentences"):
            _at_least("train", self, name, 0)
        for name in ("checkpoint_every_steps", "checkpoint_every_minutes", "keep_best"):
            _at_least("train", self, name, 0)
        _at_least("train", self, "max_minutes", 0)
        _rate("train", self, "label_smoothing")
        for name in ("adam_b1", "adam_b2"):
            _rate("train", self, name)
        for name in ("learning_rate_factor", "adam_eps"):
            if getattr(self, name) <= 0:
                raise UserError(
                    f"train.{name} is {getattr(self, name)}: it must be > 0"
                )


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
    """Section 6.1: beam search and its limits; sampling, which came later."""

    beam: int
    alpha: float
    min_length: int
    no_repeat_ngram: int
    temperature: float
    top_k: int
    top_p: float
    seed: int
    max_extra_tokens: int
    max_source_tokens: int
    tokens_per_batch: int

    def check(self) -> None:
        """Raises `UserError` for the first value that no search can have."""
        for name in ("beam", "max_source_tokens", "tokens_per_batch"):
            _at_least("decode", self, name, 1)
        for name in (
            *("alpha", "min_length", "no_repeat_ngram", "temperature", "top_k", "seed"),
            "max_extra_tokens",
        ):
            _at_least("decode", self, name, 0)
        if not 0 < self.top_p <= 1:
            raise UserError(f"decode.top_p is {self.top_p}: it must be in (0, 1]")
        if self.seed >= 2**32:
            raise UserError(f"decode.seed is {self.seed}: it must be below 2^32")


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that defines a run."""

    model: ModelConfig
    data: DataConfig
    train: TrainConfig
    decode: DecodeConfig

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | ConfigDict) -> "Config":
        """Builds the configuration from nested mappings (a dict or a ConfigDict).

        Raises:
          UserError: a key is missing, unknown, of the wrong type or out of range; the
            sentence names the key and what it may be.
        """
        config = _build(cls, values, "")
        for section in (config.model, config.data, config.train, config.decode):
            section.check()
        return config

    @classmethod
    def from_json(cls, text: str, name: str) -> "Config":
        """Reads what `to_json` wrote; `name` is the file for error messages."""
        try:
            values = json.loads(text)
        except ValueError as error:
            raise UserError(f"{name} is not valid JSON: {error}") from error
        if not isinstance(values, dict):
            raise UserError(f"{name} does not hold a JSON object")
        return cls.from_dict(values)

    def to_json(self) -> str:
        """The configuration as indented JSON, keys in declaration order."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    def flatten(self) -> dict[str, Any]:
        """All values by dotted key, as in `model.d_model`."""
        return {
            f"{section}.{key}": value
            for section, values in dataclasses.asdict(self).items()
            for key, value in values.items()
        }


def _build(cls: type, values: Any, prefix: str) -> Any:
    """One dataclass from one mapping, recursively; strict about keys and types."""
    if not isinstance(values, Mapping | ConfigDict):
        where = prefix.rstrip(".") or "the configuration"
        raise UserError(f"{where} must be a group of keys, not {values!r}")
    values = dict(values.items())
    hints = typing.get_type_hints(cls)
    for key in values:
        if key not in hints:
            near = difflib.get_close_matches(str(key), hints, n=1)
            hint = f"; did you mean {prefix}{near[0]}?" if near else ""
            raise UserError(f"{prefix}{key} is not a configuration key{hint}")
    for key in hints:
        if key not in values:
            raise UserError(f"the configuration lacks the key {prefix}{key}")
    return cls(
        **{key: _typed(hints[key], values[key], f"{prefix}{key}") for key in hints}
    )


def _typed(hint: Any, value: Any, key: str) -> Any:
    """`value` as the annotated type, or a `UserError` that names `key`."""
    if dataclasses.is_dataclass(hint):
        return _build(typing.cast(type, hint), value, f"{key}.")
    origin = typing.get_origin(hint)
    if origin is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            names = ", ".join(map(repr, choices))
            raise UserError(f"{key} is {value!r}: it must be one of {names}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{key} is {value!r}: it must be a list of integers")
        item = typing.get_args(hint)[0]
        return tuple(_typed(item, one, f"{key}[{i}]") for i, one in enumerate(value))
    assert not isinstance(hint, types.UnionType)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not hint:
        name = {"int": "a whole number", "float": "a number", "bool": "True or False"}
        raise UserError(
            f"{key} is {value!r}: it must be {name.get(hint.__name__, 'a text')}"
        )
    if hint is float and not math.isfinite(value):
        raise UserError(f"{key} is {value}: it must be finite")
    return value


def _at_least(section: str, config: Any, name: str, least: int) -> None:
    """Refuses a value below `least`, and what is not a finite number."""
    value = getattr(config, name)
    if not least <= value < math.inf:
        raise UserError(f"{section}.{name} is {value}: it must be at least {least}")


def _rate(section: str, config: Any, name: str) -> None:
    """Refuses a value outside [0, 1)."""
    if not 0 <= (value := getattr(config, name)) < 1:
        raise UserError(f"{section}.{name} is {value}: it must be in [0, 1)")
