"""The few shapes that arrays of sentences have, so that few programs are compiled."""

_SIZES = (16, 32, 64, 128)  # then multiples of the last
_ROWS = (1, 8, 32, 64, 128, 256)
FEW = 8  # rows for so many sentences or fewer


def size_for(length: int, most: int | None = None) -> int:
    """The smallest width for `length` tokens; `most` if there is a model's limit."""
    for size in _SIZES:
        if length <= size:
            break
    else:
        size = -(-length // _SIZES[-1]) * _SIZES[-1]
    return min(size, most or size)


def places_for(size: int, beam: int) -> int:
    """Places for the tokens of a sentence's hypotheses: a tree with short branches."""
    return min(size + 4 * beam, size * beam)


def rows_for(count: int, most: int) -> int:
    """The most rows that `count` sentences fill, up to `most`; 8 rows for 2 to 8.

    Not all sentences have a row of their own then, but no row is idle from the start.
    """
    possible = [rows for rows in _ROWS if rows <= most] or [1]
    if count <= FEW:
        return next((rows for rows in possible if rows >= count), possible[-1])
    return max((rows for rows in possible if rows <= count), default=possible[0])
