"""The few shapes that arrays of sentences have, so that few programs are compiled."""

_SIZES = (32, 64, 128)  # then multiples of the last
_WIDTHS = (16, 24, 32, 48, 64, 96, 128)  # likewise
_ROWS = (1, 8, 32, 128, 512)
FEW = 8  # rows for so many sentences or fewer


def size_for(length: int) -> int:
    """The smallest size of a search for `length` tokens."""
    return _at_least(length, _SIZES)


def width_for(length: int, most: int | None = None) -> int:
    """The smallest width for `length` tokens; `most` if there is a model's limit."""
    width = _at_least(length, _WIDTHS)
    return min(width, most or width)


def _at_least(length: int, steps: tuple[int, ...]) -> int:
    """The smallest of `steps`, or of the last one's multiples, that is no less."""
    multiple = -(-length // steps[-1]) * steps[-1]
    return next((step for step in steps if step >= length), multiple)


def places_for(size: int, beam: int) -> int:
    """Places for the tokens of a sentence's hypotheses: a tree with short branches."""
    return min(size + size * beam // 8, size * beam)


def rows_for(count: int, most: int) -> int:
    """The most rows that `count` sentences fill, up to `most`; 8 rows for 2 to 8.

    Not all sentences have a row of their own then, but no row is idle from the start.
    """
    if count <= FEW:
        return rows_to_hold(count, most)
    possible = _possible_rows(most)
    return max((rows for rows in possible if rows <= count), default=possible[0])


def rows_to_hold(count: int, most: int) -> int:
    """The fewest rows where each of `count` sentences has its own, or `most`."""
    possible = _possible_rows(most)
    return next((rows for rows in possible if rows >= count), possible[-1])


def _possible_rows(most: int) -> list[int]:
    """Numbers of rows up to `most`, and 1 in any case."""
    return [rows for rows in _ROWS if rows <= most] or [1]
