"""Produce requests for topics that name a codec (compression.type): their batches are recompressed.

Compressing takes long, so it happens in a thread of its own, one request after the other, while the
event loop goes on. A connection's requests keep their order: while one of them is here, those
behind it come here too, whatever they are for.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial

from chronik.broker.disk import Disk
from chronik.broker.partitions import Partitions
from chronik.wire.compression import Codec, recompressed
from chronik.wire.produce import ProducePartition, ProduceRequest
from chronik.wire.record_iter import CorruptRecords

Damaged = list[tuple[ProducePartition, str]]
Serve = Callable[[ProduceRequest, Damaged], None]
"""Goes on with a request: what is good of it, and what could not be read with the reason."""

log = logging.getLogger(__name__)


class Recompression:
    """The thread, and who waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, partitions: Partitions) -> None:
        self._loop = loop
        self._partitions = partitions
        self._thread: Disk | None = None
        self._waiting: Counter[object] = Counter()
        """Requests under way by connection."""

    def concerns(self, request: ProduceRequest, peer: object) -> bool:
        """Whether the request must come here; nearly free while no topic names a codec."""
        if self._waiting and self._waiting[peer]:
            return True
        codecs = self._partitions.codecs
        return bool(codecs) and any(_topic(wanted) in codecs for wanted in request.partitions)

    def start(
        self, request: ProduceRequest, peer: object, serve: Serve, failed: Callable[[], None]
    ) -> None:
        """Recompresses what needs it, then calls `serve` on the event loop."""
        if self._thread is None:
            self._thread = Disk(self._loop, workers=1)
        self._waiting[peer] += 1
        codecs = [self._partitions.codecs.get(_topic(wanted)) for wanted in request.partitions]
        self._thread.start(
            partial(_recompress, request, codecs), partial(self._done, peer, serve, failed)
        )

    def close(self) -> None:
        """Ends the thread; requests under way are finished first."""
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    def _done(
        self,
        peer: object,
        serve: Serve,
        failed: Callable[[], None],
        outcome: tuple[ProduceRequest, Damaged] | BaseException,
    ) -> None:
        self._waiting[peer] -= 1
        if not self._waiting[peer]:
            del self._waiting[peer]
        if isinstance(outcome, BaseException):
            log.error("batches of a produce request cannot be recompressed", exc_info=outcome)
            failed()
            return
        try:
            serve(*outcome)
        except Exception:
            # No success for what went wrong: the client sees its connection end, and asks again.
            log.exception("a produce request failed after its batches were recompressed")
            failed()


def _topic(wanted: ProducePartition) -> str | bytes:
    return wanted.topic_id if wanted.topic_id is not None else wanted.topic or ""


def _recompress(
    request: ProduceRequest, codecs: list[Codec | None]
) -> tuple[ProduceRequest, Damaged]:
    """In the thread."""
    good: list[ProducePartition] = []
    damaged: Damaged = []
    for wanted, codec in zip(request.partitions, codecs, strict=True):
        if codec is None or not wanted.records:
            good.append(wanted)
            continue
        try:
            good.append(wanted._replace(records=recompressed(wanted.records, codec)))
        except CorruptRecords as error:
            damaged.append((wanted, str(error)))
    return request._replace(partitions=good), damaged
