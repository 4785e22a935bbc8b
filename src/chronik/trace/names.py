"""Topics, clients and details as numbers: a text is kept once, its rows hold its number.

A number is never used again, so that no row can be read with another one's text. Texts of which
there are too many to keep are forgotten in generations: once the lookup has its fill an empty one
takes its place, and the texts of the full one go when no row from before is left.
"""

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from chronik.model.limits import TRACE_TEXT_CHARS_MAX, TRACE_TEXTS_MAX

NULL: Final = 0
"""The number of a text that is not there."""


class Numbers(dict[str | None, int]):
    """The number of each text; one that is new gets its number by being asked for."""

    __slots__ = ("_names", "chars")

    def __init__(self, names: "Names") -> None:
        super().__init__({None: NULL})
        self.chars = 0
        self._names = names

    def __missing__(self, text: str | None) -> int:
        return self._names.add(self, text)


class _Generation(NamedTuple):
    """A lookup was full: rows that were put before may have texts below that number."""

    puts: int
    next_number: int


class Names:
    """The texts of one tracer."""

    __slots__ = ("_generations", "_lock", "_puts_so_far", "_texts", "first", "numbers")

    def __init__(self, puts_so_far: Callable[[], int]) -> None:
        self.numbers = Numbers(self)
        """Looked up by whoever packs a row; another one for the next row perhaps."""
        self.first = NULL + 1
        self._texts: list[str] = []
        self._generations: list[_Generation] = []
        self._puts_so_far = puts_so_far
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, numbers: Numbers, text: str | None) -> int:
        """A number for a new text; raises for one that no column can hold."""
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is no text")
        text.encode()  # raises for a lone surrogate
        with self._lock:
            number = self.first + len(self._texts)
            self._texts.append(text)
            numbers[text] = number
            numbers.chars += len(text)
            is_full = len(numbers) > TRACE_TEXTS_MAX or numbers.chars > TRACE_TEXT_CHARS_MAX
            if is_full and numbers is self.numbers:
                self._generations.append(_Generation(self._puts_so_far(), number + 1))
                self.numbers = Numbers(self)
        return number

    def known(self) -> tuple[int, list[str]]:
        """The first number and the texts from it on. Take the rows before: theirs are in it."""
        with self._lock:
            return self.first, self._texts.copy()

    def forget(self, puts_gone: int) -> None:
        """So many puts of rows will never be read again, nor will the texts that only they had.

        A generation more is kept: another thread may have a number in hand for a row to come.
        """
        if len(self._generations) < 2:
            return
        with self._lock:
            generations = self._generations
            while len(generations) > 1 and generations[1].puts <= puts_gone:
                next_number = generations.pop(0).next_number
                del self._texts[: next_number - self.first]
                self.first = next_number
