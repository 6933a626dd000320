"""From a trained model to translations (section 6.1)."""

from transformer.decoding.attention import SentenceAttention, sentence_attention
from transformer.decoding.scoring import Score, word_alignment
from transformer.decoding.search import length_penalty
from transformer.decoding.translator import Translation, Translator

__all__ = [
    "Score",
    "SentenceAttention",
    "Translation",
    "Translator",
    "length_penalty",
    "sentence_attention",
    "word_alignment",
]
