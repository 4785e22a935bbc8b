"""The events of one fetch: what they share is looked up once, and the clocks are read per look."""

from chronik.trace.tracer import Tracer


class FetchRows:
    """For one request of a client, whose events are many: several for each of its partitions."""

    __slots__ = (
        "_client_id",
        "_connection_id",
        "_correlation_id",
        "_mono_ns",
        "_received_ns",
        "_took_us",
        "_tracer",
        "_wall_ns",
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
        self._client_id = client_id
        self._connection_id = connection_id
        self._correlation_id = correlation_id
        self.look()

    def look(self) -> None:
        """The events that follow are of this moment."""
        self._wall_ns, self._mono_ns = self._tracer.now()
        self._took_us = (self._mono_ns - self._received_ns) // 1000

    def add(  # noqa: PLR0913, PLR0917 - one argument per column
        self,
        kind: int,
        topic: str | None,
        partition: int,
        offset: int,
        size: int | None = None,
        high_watermark: int | None = None,
        log_end: int | None = None,
        error_code: int | None = None,
        detail: str | None = None,
    ) -> None:
        """One event of one partition; positions as in `TraceEvent`."""
        tracer = self._tracer
        # fmt: off
        tracer.add((
            self._wall_ns, self._mono_ns, tracer.node, kind, topic, partition,
            None, offset, None, None, size, high_watermark, log_end, None, None, None, None,
            self._client_id, self._connection_id, self._correlation_id, None,
            error_code, self._took_us, detail,
        ))
        # fmt: on
