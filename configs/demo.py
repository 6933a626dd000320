"""The generated English-German language: a Transformer that learns in minutes.

    make demo

or, without the evaluation after it,

    python train.py --config=configs/demo.py --workdir=runs/demo

Hardware and time: two CPU cores, less than four minutes. Target: BLEU above 90 on
unseen combinations, and the right pronoun in at least 95 % of the contrast pairs.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    """A tiny model; the language is regular, so little regularisation is needed."""
    config = base.get_config()
    config.update(
        model=dict(
            num_layers=2,
            d_model=128,
            d_ff=256,
            num_heads=4,
            d_k=32,
            d_v=32,
            dropout=0.05,
        ),
        data=dict(
            source="demo",
            vocab_size=2000,
            max_tokens=32,
            plan="pack",
            pack_width=32,
            tokens_per_batch=1024,
        ),
        train=dict(
            num_steps=1500,
            max_minutes=3.4,
            learning_rate_factor=0.5,
            warmup_steps=200,
            log_every=50,
            validate_every=0,
            validation_sentences=100,
            checkpoint_every_steps=30,
            checkpoint_every_minutes=0.0,
            keep_last=8,
        ),
        decode=dict(max_source_tokens=64),
    )
    return config
