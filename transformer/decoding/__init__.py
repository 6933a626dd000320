"""From a trained model to translations (section 6.1)."""

from transformer.decoding.attention import SentenceAttention, sentence_attention
from transformer.decoding.search import (
    SearchResult,
    SpecialIds,
    beam_search,
    length_penalty,
)
from transformer.decoding.translator import Translation, Translator

__all__ = [
    "SearchResult",
    "SentenceAttention",
    "SpecialIds",
    "Translation",
    "Translator",
    "beam_search",
    "length_penalty",
    "sentence_attention",
]
