"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017) in JAX.

The letters that stand for sizes in every array annotation of this package:

    B  batch: sentences, or rows of packed sentences
    S  source length          T  target length
    D  d_model                F  d_ff
    H  heads                  K  beam
    V  vocabulary             N  layers
"""
