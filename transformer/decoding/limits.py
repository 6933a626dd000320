"""How much of a line is read, how long its translation may be, and who is told."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

logger = logging.getLogger(__name__)


class Limits(NamedTuple):
    """The limits of a search, in tokens with EOS: see the keys of these names.

    A learned table of `max_positions`, where there is one, limits both sides.
    """

    max_source_tokens: int
    max_extra_tokens: int
    max_positions: int | None

    def source(self, ids: Sequence[int], eos: int) -> list[int]:
        """What is read of a line: its pieces up to the limit, and EOS."""
        return [*ids[: self._longest_source[0] - 1], eos]

    def numbered_source(self, number: int, ids: Sequence[int], eos: int) -> list[int]:
        """The same of a file's line, with a warning if any of its pieces are lost."""
        most, key = self._longest_source
        if len(ids) + 1 > most:
            logger.warning(
                "line %d has %d tokens: only the first %d are used (%s)",
                number,
                len(ids) + 1,
                most,
                key,
            )
        return self.source(ids, eos)

    def longest_output(self, source: Sequence[int], prefix: Sequence[int]) -> int:
        """The most tokens of a source's translation, which begins with the prefix."""
        limit = max(len(source), len(prefix)) + self.max_extra_tokens
        return min(limit, self.max_positions or limit)

    def warn_of_cut_translations(self, numbers: Sequence[int]) -> None:
        """Names the lines whose translation is cut off, if there are any."""
        if numbers:
            logger.warning(
                "cut off at the limit of source tokens plus %d "
                "(decode.max_extra_tokens)%s: the translation of line%s %s%s",
                self.max_extra_tokens,
                f" or of {self.max_positions} (model.max_positions)"
                if self.max_positions
                else "",
                "s" if len(numbers) > 1 else "",
                ", ".join(map(str, numbers[:10])),
                f" and {len(numbers) - 10} more" if len(numbers) > 10 else "",
            )

    @property
    def _longest_source(self) -> tuple[int, str]:
        """The most tokens that are used of a line, and the key for it."""
        limits = [(self.max_source_tokens, "decode.max_source_tokens")]
        if self.max_positions:
            limits.append((self.max_positions, "model.max_positions"))
        return min(limits)
