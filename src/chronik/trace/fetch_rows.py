"""The events of one fetch: what they share is looked up once, and the clocks are read per look."""

from chronik.trace.events import EventKind
from chronik.trace.packed import UNFIT, Shape, shape
from chronik.trace.tracer import Tracer

_WHO = ("connection_id", "duration_us", "partition", "correlation_id")
_TEXTS = ("topic", "client_id")
_LEVELS = ("high_watermark", "log_end")
START = shape(EventKind.FETCH_START, "base_offset", *_WHO, *_TEXTS, "detail")
WATERMARK = shape(EventKind.FETCH_WATERMARK, "base_offset", *_LEVELS, *_WHO, *_TEXTS)
DATA = shape(EventKind.FETCH_DATA, "base_offset", "bytes", *_LEVELS, *_WHO, *_TEXTS)
REJECTED = shape(EventKind.REJECTED, "base_offset", *_LEVELS, *_WHO, *_TEXTS, "error_code")
EMPTY = shape(EventKind.FETCH_EMPTY, "base_offset", "bytes", *_WHO, *_TEXTS)
SERVED = shape(EventKind.FETCH_SERVED, "base_offset", "bytes", *_WHO, *_TEXTS)
_FOLLOWER = (*_LEVELS, *_WHO, "peer", *_TEXTS)
FOLLOWER_START = shape(EventKind.FETCH_START, "base_offset", *_FOLLOWER)
FOLLOWER_EMPTY = shape(EventKind.FETCH_EMPTY, "base_offset", "bytes", *_FOLLOWER)
FOLLOWER_SERVED = shape(EventKind.FETCH_SERVED, "base_offset", "bytes", *_FOLLOWER)


class FetchRows:
    """For one request of a client, whose events are many: several for each of its partitions."""

    __slots__ = (
        "_client",
        "_connection_id",
        "_correlation_id",
        "_mono_ns",
        "_received_ns",
        "_took_us",
        "_tracer",
    )

    def __init__(
        self,
        tracer: Tracer,
        received_ns: int,
        client_id: str | None,
        connection_id: int,
        correlation_id: int,
    ) -> None:
        self._tracer = tracer
        self._received_ns = received_ns
        self._client = client_id
        self._connection_id = connection_id
        self._correlation_id = correlation_id
        self.look()

    def look(self) -> None:
        """The events that follow are of this moment."""
        self._mono_ns = self._tracer.mono_ns()
        self._took_us = (self._mono_ns - self._received_ns) // 1000

    def start(self, topic: str | None, index: int, offset: int, asked: str) -> None:
        """A partition is asked for."""
        number_of = self._tracer.names.numbers
        try:
            # fmt: off
            self._tracer.put(START.pack(
                self._mono_ns, offset, self._connection_id, self._took_us,
                index, self._correlation_id, number_of[topic], number_of[self._client],
                number_of[asked], START.number,
            ))
            # fmt: on
        except UNFIT as error:
            self._tracer.count_lost(1, str(error))

    def add(
        self,
        shape: Shape,
        topic: str | None,
        index: int,
        *values: int,
        code: tuple[int] | tuple[()] = (),
    ) -> None:
        """One event of one partition: the offset, then what its shape has of size and levels."""
        number_of = self._tracer.names.numbers
        try:
            # fmt: off
            self._tracer.put(shape.pack(
                self._mono_ns, *values, self._connection_id, self._took_us,
                index, self._correlation_id, number_of[topic], number_of[self._client],
                *code, shape.number,
            ))
            # fmt: on
        except UNFIT as error:
            self._tracer.count_lost(1, str(error))
