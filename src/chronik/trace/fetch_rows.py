"""The events of one fetch: what they share is looked up once, and the clocks are read per look."""

from chronik.trace.events import EventKind
from chronik.trace.packed import UNFIT, Shape, pack_two, shape
from chronik.trace.tracer import Tracer

_WHO = ("connection_id", "duration_us", "partition", "correlation_id")
_TEXTS = ("topic", "client_id")
_LEVELS = ("high_watermark", "log_end")
START = shape(EventKind.FETCH_START, "base_offset", *_WHO, *_TEXTS, "detail")
WATERMARK = shape(EventKind.FETCH_WATERMARK, "base_offset", *_LEVELS, *_WHO, *_TEXTS)
_pack_start_and_watermark = pack_two(START, WATERMARK)
DATA = shape(EventKind.FETCH_DATA, "base_offset", "bytes", *_LEVELS, *_WHO, *_TEXTS)
REJECTED = shape(EventKind.REJECTED, "base_offset", *_LEVELS, *_WHO, *_TEXTS, "error_code")
EMPTY = shape(EventKind.FETCH_EMPTY, "base_offset", "bytes", *_WHO, *_TEXTS)
SERVED = shape(EventKind.FETCH_SERVED, "base_offset", "bytes", *_WHO, *_TEXTS)
_FOLLOWER = (*_LEVELS, *_WHO, "peer", *_TEXTS)
FOLLOWER_START = shape(EventKind.FETCH_START, "base_offset", *_FOLLOWER)
FOLLOWER_EMPTY = shape(EventKind.FETCH_EMPTY, "base_offset", "bytes", *_FOLLOWER)
FOLLOWER_SERVED = shape(EventKind.FETCH_SERVED, "base_offset", "bytes", *_FOLLOWER)


class FetchRows:
    """For one request of a client, whose events are many: several for each partition it looks at.

    What an answer that is full leaves for the next one is not looked at, and has no events.
    """

    __slots__ = (
        "_asked",
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
        asked: str,
    ) -> None:
        self._asked = asked
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

    def start(self, topic: str | None, index: int, offset: int) -> None:
        """A partition is asked for that is not here."""
        number_of = self._tracer.names.numbers
        try:
            # fmt: off
            self._tracer.put(START.pack(
                self._mono_ns, offset, self._connection_id, self._took_us,
                index, self._correlation_id, number_of[topic], number_of[self._client],
                number_of[self._asked], START.number,
            ))
            # fmt: on
        except UNFIT as error:
            self._tracer.count_lost(1, str(error))

    def start_and_look(
        self, topic: str, index: int, offset: int, high_watermark: int, log_end: int
    ) -> None:
        """A partition is asked for, and looked at for the first time: two events at once."""
        number_of, mono_ns, took_us = self._tracer.names.numbers, self._mono_ns, self._took_us
        connection_id, correlation_id = self._connection_id, self._correlation_id
        try:
            of_topic, of_client = number_of[topic], number_of[self._client]
            # fmt: off
            self._tracer.put(_pack_start_and_watermark(
                mono_ns, offset, connection_id, took_us,
                index, correlation_id, of_topic, of_client, number_of[self._asked], START.number,
                mono_ns, offset, high_watermark, log_end, connection_id, took_us,
                index, correlation_id, of_topic, of_client, WATERMARK.number,
            ))
            # fmt: on
        except UNFIT as error:
            self._tracer.count_lost(2, str(error))

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
