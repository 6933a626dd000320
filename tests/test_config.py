"""The configuration's door is strict and its errors name the key."""

import dataclasses

import pytest

from configs import base
from transformer.config import Config
from transformer.errors import UserError


def values() -> dict:
    """The base configuration as nested dicts."""
    return base.get_config().to_dict()


def test_round_trip_through_json():
    """What config.json holds is the configuration that wrote it."""
    config = Config.from_dict(values())
    assert Config.from_json(config.to_json(), "config.json") == config


def test_every_key_is_declared_and_present():
    """The dataclasses and configs/base.py have the same keys, no more and no fewer."""
    flat = {f"{s}.{k}" for s, group in values().items() for k in group}
    assert set(Config.from_dict(values()).flatten()) == flat


@pytest.mark.parametrize(
    ("section", "key", "value", "says"),
    [
        ("model", "d_modle", 3, "did you mean model.d_model"),
        ("model", "num_layers", "six", "model.num_layers is 'six'"),
        ("model", "num_layers", True, "model.num_layers is True"),
        ("model", "num_layers", 0, "at least 1"),
        ("model", "dropout", 1.0, r"model.dropout is 1.0: it must be in \[0, 1\)"),
        ("model", "dropout", float("nan"), "finite"),
        ("model", "norm", "prae", "'post', 'pre'"),
        ("data", "bucket_widths", (16, 8), "rising"),
        ("data", "max_tokens", 10_000, "must fit into a row"),
        ("data", "target_language", "en", "both 'en'"),
        ("train", "adam_eps", 0.0, "train.adam_eps"),
        ("train", "warmup_steps", -1, "train.warmup_steps"),
        ("decode", "beam", 0, "decode.beam"),
    ],
)
def test_a_wrong_value_is_refused_by_name(section, key, value, says):
    """A misspelt key or a value out of range never becomes a default."""
    wrong = values()
    wrong[section][key] = value
    with pytest.raises(UserError, match=says):
        Config.from_dict(wrong)


def test_a_missing_key_is_refused_by_name():
    """No key has a default outside configs/base.py."""
    wrong = values()
    del wrong["train"]["seed"]
    with pytest.raises(UserError, match=r"lacks the key train\.seed"):
        Config.from_dict(wrong)


def test_the_configuration_is_frozen():
    """Nothing changes a run's settings once it has started."""
    config = Config.from_dict(values())
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.model.d_model = 3  # type: ignore[misc]
