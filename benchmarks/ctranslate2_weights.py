"""A trained model in CTranslate2's format, so that both translate the same thing."""

from pathlib import Path
from typing import Any

import numpy as np

from transformer.decoding import Translator


def ctranslate2_model(translator: Translator, folder: Path) -> None:
    """Writes the translator's weights in CTranslate2's format."""
    from ctranslate2.specs import TransformerSpec

    model, vocabulary = translator.config.model, translator.vocabulary
    params: Any = {k: _numpy(v) for k, v in translator.params.items()}
    spec = TransformerSpec.from_config(
        model.num_layers, model.num_heads, pre_norm=model.norm == "pre"
    )
    spec.config.layer_norm_epsilon = 1e-6
    table = params["embedding"][: len(vocabulary)]
    waves = _sinusoids(512, model.d_model)
    for stack, embeddings in (
        (spec.encoder, spec.encoder.embeddings[0]),
        (spec.decoder, spec.decoder.embeddings),
    ):
        embeddings.weight = table
        stack.position_encodings.encodings = waves
    spec.decoder.projection.weight = table
    for number, layer in enumerate(spec.encoder.layer):
        ours = params[f"encoder_layers_{number}"]
        _attention(layer.self_attention, ours["attention"], ours["attention_residual"])
        _feed_forward(layer.ffn, ours)
    for number, layer in enumerate(spec.decoder.layer):
        ours = params[f"decoder_layers_{number}"]
        _attention(layer.self_attention, ours["self_attention"], ours["self_residual"])
        _attention(layer.attention, ours["cross_attention"], ours["cross_residual"])
        _feed_forward(layer.ffn, ours)
    pieces = vocabulary.pieces(range(len(vocabulary)))
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    special = (vocabulary.bos_id, vocabulary.eos_id)
    bos, eos = (pieces[i] for i in special)
    spec.config.bos_token = spec.config.decoder_start_token = bos
    spec.config.eos_token = eos
    spec.validate()
    spec.save(str(folder))


def _numpy(tree: Any) -> Any:
    """Arrays of JAX as NumPy's."""
    if isinstance(tree, dict):
        return {key: _numpy(value) for key, value in tree.items()}
    return np.asarray(tree, np.float32)


def _sinusoids(length: int, d_model: int) -> np.ndarray:
    """The paper's positions, sines and cosines interleaved."""
    angles = np.arange(length)[:, None] * 10000.0 ** (
        -np.arange(0, d_model, 2) / d_model
    )
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return waves.reshape(length, d_model).astype(np.float32)


def _linear(spec: Any, kernel: np.ndarray, bias: np.ndarray | None = None) -> None:
    """A matrix from inputs to outputs as CTranslate2 has it, outputs first."""
    spec.weight = np.ascontiguousarray(kernel.T)
    spec.bias = np.zeros(kernel.shape[1], np.float32) if bias is None else bias


def _norm(spec: Any, residual: dict) -> None:
    """A layer normalisation."""
    spec.gamma, spec.beta = residual["norm"]["scale"], residual["norm"]["bias"]


def _attention(spec: Any, ours: dict, residual: dict) -> None:
    """Query, key and value in one matrix; key and value in one for the encoder's."""
    d_model = ours["query"].shape[0]
    query, key, value = (
        ours[name].reshape(d_model, -1) for name in ("query", "key", "value")
    )
    if len(spec.linear) == 2:
        _linear(spec.linear[0], np.concatenate([query, key, value], axis=1))
    else:
        _linear(spec.linear[0], query)
        _linear(spec.linear[1], np.concatenate([key, value], axis=1))
    _linear(spec.linear[-1], ours["out"].reshape(-1, d_model))
    _norm(spec.layer_norm, residual)


def _feed_forward(spec: Any, layer: dict) -> None:
    """Both matrices with their biases."""
    ours = layer["feed_forward"]
    _linear(spec.linear_0, ours["hidden"], ours["hidden_bias"])
    _linear(spec.linear_1, ours["out"], ours["out_bias"])
    _norm(spec.layer_norm, layer["feed_forward_residual"])
