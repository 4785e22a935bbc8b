"""A network that loses, delays, reorders and duplicates, and can be cut, also in one direction."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from random import Random


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    """How bad the network is; percentages per message."""

    loss_percent: int = 2
    duplicate_percent: int = 2
    delay_us_max: int = 5_000
    straggler_percent: int = 2
    """Messages that come very late, after much that was sent later."""
    straggler_us_max: int = 300_000


class Network:
    """Decides when, if ever, and how often a message arrives."""

    __slots__ = ("_random", "cuts", "faults")

    def __init__(self, random: Random, faults: NetworkFaults) -> None:
        self._random = random
        self.faults = faults
        self.cuts: set[tuple[int, int]] = set()

    def arrivals_us(self, sender: int, to: int) -> list[int]:
        """Delays after which copies of a message arrive; empty if it is lost."""
        if (sender, to) in self.cuts or self._happens(self.faults.loss_percent):
            return []
        copies = 2 if self._happens(self.faults.duplicate_percent) else 1
        return [self._delay_us() for _ in range(copies)]

    def is_cut(self, sender: int, to: int) -> bool:
        """True if nothing passes, also not what was sent before the cut."""
        return (sender, to) in self.cuts

    def _happens(self, percent: int) -> bool:
        return self._random.randrange(100) < percent

    def _delay_us(self) -> int:
        late = self._happens(self.faults.straggler_percent)
        return self._random.randrange(
            self.faults.straggler_us_max if late else self.faults.delay_us_max
        )

    def cut(self, some: Iterable[int], others: Iterable[int], *, one_way: bool = False) -> None:
        """Nothing passes from some to the others any more, nor back unless it is one way."""
        pairs = set(product(some, others))
        self.cuts |= pairs
        if not one_way:
            self.cuts |= {(to, sender) for sender, to in pairs}

    def heal(self) -> None:
        """All ways are open."""
        self.cuts.clear()
