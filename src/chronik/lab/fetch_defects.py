"""Defects of the way out: what Fetch answers, and when."""

from collections.abc import Callable
from typing import Any

from chronik.broker.partition import Partition
from chronik.handlers import fetch
from chronik.lab.replacing import replace
from chronik.storage.segment import Read
from chronik.wire.records import scan


def long_poll_asleep() -> None:
    """A fetch that waits is not told of new data: it always waits its full time."""
    replace(fetch._Fetch, "look_again", lambda self: None)


def skipped_batch() -> None:
    """An answer of three batches or more lacks the second one."""
    read = Partition.read

    def with_a_hole(self: Partition, *args: Any, **kwargs: Any) -> Read | None:
        found = read(self, *args, **kwargs)
        if found is None:
            return None
        data = b"".join(found.slices)
        starts = [position for position, _ in scan(data)]
        if len(starts) < 3:
            return found
        slices = [memoryview(data)[: starts[1]], memoryview(data)[starts[2] :]]
        return found._replace(slices=slices, size=sum(map(len, slices)))

    replace(Partition, "read", with_a_hole)


DEFECTS: dict[str, Callable[[], None]] = {
    "long-poll-asleep": long_poll_asleep,
    "skipped-batch": skipped_batch,
}
