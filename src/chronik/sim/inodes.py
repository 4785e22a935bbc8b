"""Files and directories of the disk in memory: what is there now, and what a crash would leave.

Every change waits in a list until a sync makes it durable. A crash keeps a random part of what
waits: none, all, a prefix, any subset, writes torn at any byte or filled with zeros. Real disks are
kinder; code that survives this survives them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

T = TypeVar("T")
Names = dict[str, "File | Directory"]


@dataclass(slots=True)
class Change:
    """A write at a position, or a cut (`data` is None) to a size."""

    position: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        """Does it to a file's bytes."""
        if self.data is None:
            del content[self.position :]
        gap = self.position - len(content)
        if gap > 0:
            content.extend(bytes(gap))
        if self.data is not None:
            content[self.position : self.position + len(self.data)] = self.data

    def torn(self, rng: Random) -> "Change":
        """What may reach the disk of it when the power goes."""
        if not self.data or rng.randrange(2):
            return self
        cut = rng.randrange(len(self.data) + 1)
        torn = self.data[:cut]
        if rng.randrange(2):
            # The size reached the disk, the bytes did not.
            torn += bytes(len(self.data) - cut)
        return Change(self.position, torn)


@dataclass(slots=True, eq=False)
class File:
    """Bytes, and those of them that are durable."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)
    unreported: int = 0
    """What the next fdatasync says: the error of a write that nobody was told of."""

    def change(self, change: Change) -> None:
        """Seen at once, durable later."""
        change.apply(self.content)
        self.pending.append(change)

    def sync(self) -> None:
        """All of it is durable."""
        for change in self.pending:
            change.apply(self.durable)
        self.pending.clear()

    def forget_writes(self) -> None:
        """They are read as before, and no later sync makes them durable."""
        self.pending = [change for change in self.pending if change.data is None]

    def crash(self, rng: Random) -> None:
        """The power went and came back."""
        for change in _survivors(self.pending, rng):
            change.torn(rng).apply(self.durable)
        self.pending.clear()
        self.unreported = 0
        self.content = bytearray(self.durable)


@dataclass(slots=True, eq=False)
class Directory:
    """Names, and those of them that are durable."""

    names: Names = field(default_factory=dict)
    durable: Names = field(default_factory=dict)
    pending: list[Callable[[Names], None]] = field(default_factory=list)

    def change(self, change: Callable[[Names], None]) -> None:
        """Seen at once, durable later."""
        change(self.names)
        self.pending.append(change)

    def sync(self) -> None:
        """All names are durable; what the files hold is not."""
        for change in self.pending:
            change(self.durable)
        self.pending.clear()

    def crash(self, rng: Random) -> None:
        """The power went and came back, for all that is below as well."""
        for change in _survivors(self.pending, rng):
            change(self.durable)
        self.pending.clear()
        self.names = dict(self.durable)
        for node in self.names.values():
            node.crash(rng)

    @property
    def used_bytes(self) -> int:
        """Bytes of all files below."""
        return sum(
            node.used_bytes if isinstance(node, Directory) else len(node.content)
            for node in self.names.values()
        )


def removal(name: str) -> Callable[[Names], None]:
    """The change that takes a name away."""

    def change(names: Names) -> None:
        names.pop(name, None)

    return change


def _survivors(pending: list[T], rng: Random) -> list[T]:
    match rng.randrange(4):
        case 0:
            return []
        case 1:
            return list(pending)
        case 2:
            return pending[: rng.randint(0, len(pending))]
        case _:
            return [change for change in pending if rng.randrange(2)]
