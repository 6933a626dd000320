"""How good a model is, and pictures of it."""

from transformer.evaluation.bleu import Score, Scores, sacrebleu_set, score
from transformer.evaluation.perplexity import Perplexity, perplexity
from transformer.evaluation.pictures import attention_picture, learning_curve

__all__ = [
    "Perplexity",
    "Score",
    "Scores",
    "attention_picture",
    "learning_curve",
    "perplexity",
    "sacrebleu_set",
    "score",
]
