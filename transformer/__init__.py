"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017) in JAX.

    from transformer import Translator

    translator = Translator.from_run("runs/multi30k")
    for translation in translator.translate(["A dog runs."]):
        print(translation.text)

The letters that stand for sizes in every array annotation of this package:

    B  batch: sentences, or rows of packed sentences
    S  source length          T  target length
    D  d_model                F  d_ff
    H  heads                  K  beam
    V  vocabulary             N  layers
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer.decoding import Translator

__all__ = ["Translator"]


def __getattr__(name: str) -> Any:
    """Imports the translator when it is asked for: commands set JAX up before."""
    if name == "Translator":
        from transformer.decoding import Translator

        return Translator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
