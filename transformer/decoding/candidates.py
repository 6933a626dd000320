"""Which pieces may follow a hypothesis, and which of them are taken."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

_GROUPS = range(32, 65)  # pieces whose largest is found first


def allowed_pieces(
    tokens: Int[Array, "B K L"],
    lengths: Int[Array, "B"],
    forced: Int[Array, "B"] | None,
    num_pieces: int,
    *,
    never: tuple[int, ...],
    eos: int,
    min_length: int,
    no_repeat_ngram: int,
) -> Bool[Array, "B K V"]:
    """True for pieces that may come next.

    Args:
      tokens: the hypotheses so far, each `lengths` long.
      lengths: tokens of a sentence's hypotheses.
      forced: the one piece that must come next, or -1; None where there is none.
      num_pieces: pieces of the vocabulary.
      never: pieces that are not output: padding and bos.
      eos: ends a hypothesis; allowed where nothing else is.
      min_length: tokens of the shortest output, EOS not counted.
      no_repeat_ngram: an n-gram that is in a hypothesis does not come again; 0: it may.
    """
    pieces = jnp.arange(num_pieces)
    usable = (pieces[:, None] != jnp.asarray([*never, eos])).all(axis=1)
    allowed = jnp.broadcast_to(usable, (*tokens.shape[:2], num_pieces))
    may_end = (lengths >= min_length)[:, None]
    if no_repeat_ngram:
        allowed &= ~_completes_ngram(tokens, lengths, num_pieces, no_repeat_ngram)
        may_end |= ~allowed.any(axis=2)
    allowed |= (pieces == eos) & may_end[..., None]
    if forced is None:
        return allowed
    is_forced = (forced >= 0)[:, None, None]
    return jnp.where(is_forced, (pieces == forced[:, None])[:, None], allowed)


def _completes_ngram(
    tokens: Int[Array, "B K L"], lengths: Int[Array, "B"], num_pieces: int, n: int
) -> Bool[Array, "B K V"]:
    """True for pieces that would make an n-gram which the hypothesis has already."""
    batch, beam, room = tokens.shape
    starts = jnp.arange(room)
    same = jnp.broadcast_to(starts + n <= lengths[:, None, None], tokens.shape)
    for offset in range(n - 1):
        last = jnp.maximum(lengths - (n - 1) + offset, 0)
        last = jnp.take_along_axis(tokens, last[:, None, None], axis=2)
        same &= jnp.roll(tokens, -offset, axis=2) == last
    completions = jnp.roll(tokens, -(n - 1), axis=2)
    rows, slots = jnp.arange(batch)[:, None, None], jnp.arange(beam)[:, None]
    found = jnp.zeros((batch, beam, num_pieces), bool)
    return found.at[rows, slots, completions].max(same)


def largest(
    values: Float[Array, "*B V"], count: int
) -> tuple[Float[Array, "*B C"], Int[Array, "*B C"]]:
    """The `count` largest values of each row, falling, and their places.

    As `jax.lax.top_k`, but in two stages: the largest are all in the groups with the
    largest maxima, and few groups are quickly searched.
    """
    width = values.shape[-1]
    # A size that divides the width: nothing need be copied to fill the last group.
    group = next((size for size in _GROUPS if width % size == 0), _GROUPS[-1])
    num_groups = -(-width // group)
    if count >= num_groups:
        best, index = jax.lax.top_k(values, count)  # which is a list
        return best, index
    surplus = [(0, 0)] * (values.ndim - 1) + [(0, num_groups * group - width)]
    padded = jnp.pad(values, surplus, constant_values=-jnp.inf)
    grouped = padded.reshape(*values.shape[:-1], num_groups, group)
    _, groups = jax.lax.top_k(grouped.max(axis=-1), count)
    groups = jnp.sort(groups, axis=-1)  # so that equal values keep their order
    found = jnp.take_along_axis(grouped, groups[..., None], axis=-2)
    best, index = jax.lax.top_k(found.reshape(*values.shape[:-1], -1), count)
    chosen = jnp.take_along_axis(groups, index // group, axis=-1)
    return best, chosen * group + index % group


def sample(
    logits: Float[Array, "B V"],
    keys: UInt32[Array, "B 2"],
    steps: Int[Array, "B"],
    temperature: float,
    top_k: int,
    top_p: float,
) -> Int[Array, "B"]:
    """A piece of each row drawn from softmax(logits / temperature), cut to its head.

    Of the tempered distribution the `top_k` likeliest pieces remain (0: all), then the
    likeliest ones that together reach probability `top_p`, and one of them in any case.
    A draw depends on the row's key and step, not on its neighbours.
    """
    # Below this the likeliest piece has all the probability, and division overflows.
    scaled = (logits - logits.max(axis=-1, keepdims=True)) / max(temperature, 1e-6)
    if 0 < top_k < logits.shape[-1]:
        least = jax.lax.top_k(scaled, top_k)[0][:, -1:]
        scaled = jnp.where(scaled >= least, scaled, -jnp.inf)
    if top_p < 1:
        falling = -jnp.sort(-scaled, axis=-1)
        probabilities = jax.nn.softmax(falling, axis=-1)
        before = jnp.cumsum(probabilities, axis=-1) - probabilities
        kept = jnp.where(before < top_p, falling, jnp.inf).min(axis=-1, keepdims=True)
        scaled = jnp.where(scaled >= kept, scaled, -jnp.inf)

    def noise(key: UInt32[Array, "2"], step: Int[Array, ""]) -> Float[Array, "V"]:
        stream = jax.random.fold_in(jax.random.wrap_key_data(key), step)
        return jax.random.gumbel(stream, logits.shape[-1:])

    return jnp.argmax(scaled + jax.vmap(noise)(keys, steps), axis=-1)
