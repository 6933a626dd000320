"""Multi30k (29,000 image captions): a real corpus that a laptop can learn.

    python train.py --config=configs/multi30k.py --workdir=runs/multi30k

Variants: "en-de" (the default), "de-en", "en-fr", "fr-en". Hardware and time: two CPU
cores, 75 minutes. Published target: text-only Transformers of this size reach 41.0
lower-cased tokenised BLEU on test_2016_flickr from English to German.
"""

from ml_collections import ConfigDict

from configs import base
from transformer.errors import UserError

VARIANTS = ("en-de", "de-en", "en-fr", "fr-en")


def get_config(variant: str = "en-de") -> ConfigDict:
    """A small model, for a small corpus: small batches, little dropout.

    Within 75 minutes on two cores the model does not begin to overfit.
    """
    if variant not in VARIANTS:
        names = ", ".join(VARIANTS)
        raise UserError(f"configs/multi30k.py has {names}, not {variant!r}")
    source, target = variant.split("-")
    config = base.get_config()
    config.update(
        model=dict(
            num_layers=4,
            d_model=128,
            d_ff=256,
            num_heads=4,
            d_k=32,
            d_v=32,
            dropout=0.1,
        ),
        data=dict(
            tfds_name="multi30k",
            source_language=source,
            target_language=target,
            vocab_size=4000,
            max_tokens=64,
            plan="pack",
            pack_width=64,
            tokens_per_batch=1024,
        ),
        train=dict(
            num_steps=30000,
            max_minutes=75.0,
            learning_rate_factor=1.0,
            warmup_steps=1000,
            log_every=50,
            validate_every=2000,
            validation_sentences=100,
            checkpoint_every_minutes=1.0,
            keep_last=10,
        ),
        decode=dict(max_source_tokens=128),
    )
    return config
