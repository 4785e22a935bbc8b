"""One range of one partition as Arrow batches, read with Fetch; the next is asked for early."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from chronik.pipeline.client import (
    EARLIEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Cluster,
    Connection,
    OffsetOutOfRange,
    RetriableError,
    check,
    fetch_request,
)
from chronik.pipeline.decode import COLUMNS, decode, next_offset
from chronik.pipeline.fetch_answer import VERSION, FetchAnswer, read_answer
from chronik.pipeline.segments import local_answers

ROWS_MAX = 65_536
"""Rows of one Arrow batch: what Spark takes fastest."""
EMPTY_ANSWERS_MAX = 120


class DataLoss(Exception):  # noqa: N818
    """Records of the range are no longer in the log."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records start <= offset < end of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def read_range(
    bootstrap: str,
    wanted: OffsetRange,
    *,
    columns: Sequence[str] = COLUMNS,
    isolation: int = READ_UNCOMMITTED,
    segments: Sequence[str] = (),
    fail_on_data_loss: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The records of the range, in the order of their offsets, at most `ROWS_MAX` in one batch.

    `segments` are data directories of nodes: what they hold does not go through the broker.
    Without `fail_on_data_loss` records that are gone by now are passed over.
    """
    with Cluster(bootstrap) as cluster:
        reader = _Reader(cluster, wanted, isolation, fail_on_data_loss)
        for offset, data in _sources(reader, segments):
            rows = decode(
                data.records,
                wanted.topic,
                wanted.partition,
                start=offset,
                end=wanted.end,
                columns=columns,
                aborted=data.aborted,
            )
            for first in range(0, rows.num_rows, ROWS_MAX):
                yield rows.slice(first, ROWS_MAX)


def _sources(reader: "_Reader", segments: Sequence[str]) -> Iterator[tuple[int, FetchAnswer]]:
    """The files as far as they go, then Fetch."""
    wanted = reader.wanted
    place, offset = (wanted.topic, wanted.partition), wanted.start
    committed = reader.isolation == READ_COMMITTED
    for begun, data in local_answers(
        segments, place, wanted.start, wanted.end, committed=committed
    ):
        yield begun, data
        offset = next_offset(data.records, begun)
    yield from _answers(reader, offset)


def _answers(reader: "_Reader", offset: int) -> Iterator[tuple[int, FetchAnswer]]:
    """(offset asked for, answer) until the range is covered.

    The request for what follows is sent before an answer is handed out, so that the broker works
    while its last answer is decoded.
    """
    wanted, empty = reader.wanted, 0
    if offset < wanted.end:
        reader.ask(offset)
    while offset < wanted.end:
        try:
            data = reader.answer(offset)
        except OffsetOutOfRange as error:
            offset = reader.after_loss(offset, error)
            continue
        following = next_offset(data.records, offset)
        empty = 0 if following > offset else empty + 1
        if empty > EMPTY_ANSWERS_MAX:
            raise RetriableError(f"{wanted}: nothing to read at offset {offset}")
        if following < wanted.end:
            reader.ask(following)
        if following > offset:
            yield offset, data
        offset = following


class _Reader:
    """One request under way; asked again from another broker where the leader moved."""

    def __init__(
        self, cluster: Cluster, wanted: OffsetRange, isolation: int, fail_on_data_loss: bool
    ) -> None:
        self.wanted, self.isolation = wanted, isolation
        self._cluster, self._fail_on_data_loss = cluster, fail_on_data_loss
        self._asked: tuple[Connection, int] | None = None
        # One buffer for all answers: fresh memory for each costs more than the copy into it.
        self._buffer = bytearray()

    def ask(self, offset: int) -> None:
        """Sends a request; where that fails `answer` does it again."""
        try:
            self._asked = self._send(offset)
        except RetriableError:
            self._asked = None

    def answer(self, offset: int) -> FetchAnswer:
        """The answer to the request, or to a repetition of it."""
        return self._cluster.retrying(lambda: self._receive(offset))

    def after_loss(self, offset: int, error: OffsetOutOfRange) -> int:
        """Where to go on; an error unless the reader was told to."""
        place = (self.wanted.topic, self.wanted.partition)
        start = self._cluster.offsets({place: EARLIEST})[place]
        if self._fail_on_data_loss or start <= offset:
            raise DataLoss(
                f"{self.wanted}: offset {offset} is not in the log any more. Retention or a "
                "deletion was faster than this reader"
            ) from error
        return start

    def _send(self, offset: int) -> tuple[Connection, int]:
        topic, partition = self.wanted.topic, self.wanted.partition
        connection = self._cluster.leader((topic, partition))
        request = fetch_request(topic, partition, offset, self.isolation)
        return connection, connection.send(request, VERSION)

    def _receive(self, offset: int) -> FetchAnswer:
        connection, number = self._asked or self._send(offset)
        self._asked = None  # an error on the way must not be waited for again
        frame = connection.receive_frame(self._buffer)
        assert isinstance(frame.obj, bytearray)
        self._buffer = frame.obj
        answer = read_answer(frame, number)
        about = f"fetch of {self.wanted.topic}-{self.wanted.partition}"
        check(answer.error_code, about)
        if not answer.found:
            raise RetriableError(f"{about}: an empty answer")
        return answer
