"""WMT 2014 English-French (Table 2), variants "base" and "big".

    python train.py --config=configs/en_fr.py:big --workdir=runs/en_fr_big

Hardware and time: the paper used 8 P100, 12 hours for base and 3.5 days for big.
Published targets on newstest2014, tokenised BLEU: base 38.1; big 41.8 (41.0 in the
NeurIPS version). The big model's dropout is 0.1 here, where English-German has 0.3.
"""

from ml_collections import ConfigDict

from configs import base, big
from transformer.errors import UserError

VARIANTS = ("base", "big")


def get_config(variant: str = "base") -> ConfigDict:
    """The base or big configuration with the French corpus."""
    if variant not in VARIANTS:
        names = ", ".join(VARIANTS)
        raise UserError(f"configs/en_fr.py has the variants {names}, not {variant!r}")
    config = {"base": base, "big": big}[variant].get_config()
    config.update(
        model=dict(dropout=0.1),
        data=dict(
            tfds_name="wmt14_translate/fr-en", target_language="fr", vocab_size=32000
        ),
    )
    return config
