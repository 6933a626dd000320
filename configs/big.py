"""The big model on WMT 2014 English-German (Table 3, last row).

    python train.py --config=configs/big.py --workdir=runs/big

Hardware and time: the paper used 8 P100 for 3.5 days (300,000 steps).
Published target: 28.4 tokenised BLEU on newstest2014 (about 27.3 in sacreBLEU), with
the last 20 checkpoints averaged; 26.4 BLEU and perplexity 4.33 on newstest2013.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    """The base configuration with Table 3's last row."""
    config = base.get_config()
    config.update(
        model=dict(d_model=1024, d_ff=4096, num_heads=16, dropout=0.3),
        train=dict(num_steps=300000),
    )
    return config
