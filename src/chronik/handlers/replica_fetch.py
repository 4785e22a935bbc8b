"""Fetch (1) of a follower, on the peers' listener: the leader's half of replication.

Asking from an offset acknowledges what lies before it (KIP-497 counts it for the watermark). The
answer goes out as soon as there is data; a moved watermark waits a few milliseconds for data that
takes it along. Whatever did not move costs nothing, and no fetch has a timer of its own.
"""

from asyncio import Handle

from chronik.broker.broker import Broker
from chronik.broker.fetch_sessions import SessionError
from chronik.broker.partition import Partition
from chronik.broker.replica_sessions import Followed, ReplicaSession
from chronik.handlers.call import Call
from chronik.model import limits
from chronik.model.errors import ErrorCode
from chronik.storage.segment import Read
from chronik.trace import fetch_rows
from chronik.trace.events import EventKind
from chronik.trace.packed import UNFIT, Shape
from chronik.wire.fetch import FetchRequest
from chronik.wire.fetch_response import (
    EpochEnd,
    FetchResponse,
    FetchResult,
    plain_result,
    write_fetch_response,
)
from chronik.wire.replica_serve import write_brief_answer

_NONE = ErrorCode.NONE
Found = list[tuple[Followed, FetchResult]]


def answer(broker: Broker, call: Call, request: FetchRequest) -> None:
    """Takes the acknowledgements, then answers at once or as soon as something moves."""
    try:
        session = broker.replica_sessions.resolve(request)
    except SessionError as error:
        call.reply(write_fetch_response(call.api_version, FetchResponse(error_code=error.code)))
        broker.count(call, error.code)
        return
    if session.waiting is not None:
        session.waiting.answer_now()  # its follower has given it up
    # It may acknowledge what several requests of one client wait for.
    broker.outbox.together(_ReplicaFetch(broker, call, request, session).look)


class _ReplicaFetch:
    """One fetch from its first look to its answer."""

    __slots__ = ("_again", "_broker", "_call", "_request", "_session", "_waits")

    def __init__(
        self, broker: Broker, call: Call, request: FetchRequest, session: ReplicaSession
    ) -> None:
        self._broker = broker
        self._call = call
        self._request = request
        self._session = session
        self._again: Handle | None = None
        self._waits = False
        if broker.tracer.on:
            for followed in session.moved:
                self._trace(fetch_rows.FOLLOWER_START, followed)

    # -- looking

    def look(self) -> None:
        """Reads what moved; answers if there is anything, else waits for more."""
        self._again = None
        found: Found = []
        news: list[Followed] = []
        if self._session.moved:
            found, news = self._read_all()
        if found or not self._request.max_wait_ms or not len(self._session):
            self._answer(found, news)
            return
        if not self._waits:
            self._wait()
        if news:
            self._session.tell_soon(limits.WATERMARK_NEWS_MS / 1000)

    def _read_all(self) -> tuple[Found, list[Followed]]:
        """What there is to send, and of what else only a watermark is to be told."""
        session = self._session
        found: Found = []
        news: list[Followed] = []
        left, total = self._request.max_bytes, 0
        for followed in list(session.moved):
            result, size = self._read(followed, left, first=not total)
            if result is not None:
                found.append((followed, result))
                left -= size
                total += size
            elif followed.has_news():
                news.append(followed)
            else:
                session.done_with(followed)
        return found, news

    def _read(
        self, followed: Followed, left: int, *, first: bool
    ) -> tuple[FetchResult | None, int]:
        partition = followed.partition
        if partition is None or partition.leader_id < 0:
            partition = self._find(followed)  # not seen so far, or it was closed
            if partition is None:
                return self._failed(followed, self._why_missing(followed)), 0
        # All of it at once costs less than one field after the other.
        _, _, index, epoch, offset, last_epoch, log_start, size_max, _, _ = followed.wanted
        state, log = partition.state, partition.log
        is_usual = epoch == state.leader_epoch and state.is_leader and offset >= state.log_start
        if not is_usual or last_epoch != log.epochs.latest or offset > log.end_offset:
            refused = self._refused(followed, partition)
            if refused is not None:
                return refused, 0
        if not self._waits:
            self._acknowledge(partition, offset, log_start)
        if offset >= log.end_offset or (left <= 0 and not first):
            return None, 0
        try:
            read = partition.read_for_follower(
                offset, min(left, size_max), at_least_one_batch=first
            )
        except OSError:
            return self._failed(followed, ErrorCode.KAFKA_STORAGE_ERROR), 0
        if not read.size:
            return None, 0
        return self._result(followed, partition, index, read), read.size

    def _refused(self, followed: Followed, partition: Partition) -> FetchResult | None:
        """What is wrong with what it asks for, or where its log parts from this one."""
        code = _refusal(followed, partition)
        if code is not _NONE:
            return self._failed(followed, code)
        wanted, log_start = followed.wanted, partition.state.log_start
        diverging = partition.log.divergence(wanted.last_fetched_epoch, wanted.fetch_offset)
        if diverging is None:
            return None
        end = EpochEnd(diverging[0], max(diverging[1], log_start))
        return FetchResult(wanted.index, log_start_offset=log_start)._replace(diverging_epoch=end)

    def _result(
        self, followed: Followed, partition: Partition, index: int, read: Read
    ) -> FetchResult:
        partition.counters.replication_bytes_out += read.size
        followed.told(partition)
        state = partition.state
        return plain_result(index, state.high_watermark, state.log_start, read.slices)

    def _find(self, followed: Followed) -> Partition | None:
        topic_id, index = followed.key
        partition, _ = self._broker.partitions.find(None, topic_id, index)
        if partition is not followed.partition:
            followed.watch(partition)
        return partition

    def _why_missing(self, followed: Followed) -> ErrorCode:
        partitions, (topic_id, index) = self._broker.partitions, followed.key
        if partitions.leader_of(None, topic_id, index) >= 0:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return partitions.find(None, topic_id, index)[1]

    def _acknowledge(self, partition: Partition, offset: int, log_start: int) -> None:
        broker, request = self._broker, self._request
        partition.follower_fetched(
            request.replica_id, offset, broker.clock.now_ms(), request.replica_epoch, log_start
        )
        broker.isr.follower_fetched(partition)

    def _failed(self, followed: Followed, code: ErrorCode) -> FetchResult:
        self._broker.metrics.count_rejected("Fetch", code)
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._broker.metrics.count_not_leader("Fetch", self._call.client_id)
        if self._broker.tracer.on:
            self._emit(EventKind.REJECTED, followed, int(code))
        partition = followed.partition
        log_start = -1 if partition is None else partition.state.log_start
        return FetchResult(followed.key[1], int(code), -1, -1, log_start)

    # -- waiting

    def _wait(self) -> None:
        self._waits = True
        self._call.given_up = self._stop_waiting
        wait_s = min(self._request.max_wait_ms, limits.FETCH_WAIT_MS_MAX) / 1000
        self._session.wait(self, wait_s)

    def wake(self) -> None:
        """Something moved: looks again when all that moves together has moved."""
        if self._again is None:
            self._again = self._broker.loop.call_soon(self.look)

    def answer_now(self) -> None:
        """Answers with what there is."""
        self._answer(*self._read_all())

    def _stop_waiting(self) -> None:
        if self._again is not None:
            self._again.cancel()
        if self._session.waiting is self:
            self._session.waiting = None

    # -- answering

    def _answer(self, found: Found, news: list[Followed]) -> None:
        self._stop_waiting()
        session, broker = self._session, self._broker
        for followed, _ in found:
            session.served(followed)
        said = found
        if news:
            said = found + [(followed, self._told(followed)) for followed in news]
        session.news_told()
        if broker.tracer.on:
            self._trace_answer(found)
        self._say(said)
        broker.count(self._call, _NONE)

    def _say(self, said: Found) -> None:
        brief = None
        if len(said) == 1:
            followed, result = said[0]
            brief = write_brief_answer(self._session.session_id, followed.key[0], (result,))
        if brief is not None:
            self._call.reply_briefly(brief)
        else:
            self._say_all(said)

    def _say_all(self, said: Found) -> None:
        session_id, call = self._session.session_id, self._call
        topics: dict[bytes, list[FetchResult]] = {}
        for followed, result in said:
            topics.setdefault(followed.key[0], []).append(result)
        items = list(topics.items())
        brief = write_brief_answer(session_id, *items[0]) if len(items) == 1 else None
        if brief is not None:
            call.reply_briefly(brief)
            return
        response = FetchResponse(items, session_id=session_id)
        call.reply(write_fetch_response(call.api_version, response))

    def _told(self, followed: Followed) -> FetchResult:
        """The watermark; without data, the partition is done with until it moves again."""
        partition = followed.partition
        assert partition is not None, "what is not here has no watermark"
        followed.told(partition)
        self._session.done_with(followed)
        state = partition.state
        return plain_result(followed.key[1], state.high_watermark, state.log_start)

    # -- evidence

    def _trace_answer(self, found: Found) -> None:
        for followed, result in found:
            if not result.error_code:
                size = sum(map(len, result.records or ()))
                sent = fetch_rows.FOLLOWER_SERVED if size else fetch_rows.FOLLOWER_EMPTY
                self._trace(sent, followed, size)

    def _trace(self, shape: Shape, followed: Followed, *size: int) -> None:
        partition = followed.partition
        if partition is None:
            self._emit(EventKind(shape.kind), followed, None, *size)
            return
        call, tracer, state = self._call, self._broker.tracer, partition.state
        number_of, now_ns = tracer.names.numbers, tracer.mono_ns()
        try:
            # fmt: off
            tracer.put(shape.pack(  # in the order of `packed.FIELDS`
                now_ns, followed.wanted.fetch_offset, *size, state.high_watermark, state.log_end,
                call.peer.port, (now_ns - call.received_ns) // 1000, partition.index,
                call.correlation_id, self._request.replica_id,
                number_of[partition.topic], number_of[call.client_id], shape.number,
            ))
            # fmt: on
        except UNFIT as error:
            tracer.count_lost(1, str(error))

    def _emit(
        self, kind: EventKind, followed: Followed, code: int | None, size: int | None = None
    ) -> None:
        """What happens seldom."""
        topic_id, index = followed.key
        call, broker = self._call, self._broker
        state = followed.partition.state if followed.partition is not None else None
        broker.tracer.emit(
            kind,
            broker.partitions.name_of(None, topic_id),
            index,
            base_offset=followed.wanted.fetch_offset,
            bytes=size,
            high_watermark=state.high_watermark if state is not None else None,
            log_end=state.log_end if state is not None else None,
            client_id=call.client_id,
            connection_id=call.peer.port,
            correlation_id=call.correlation_id,
            peer=self._request.replica_id,
            error_code=code,
            duration_us=(broker.clock.monotonic_ns() - call.received_ns) // 1000,
        )


def _refusal(followed: Followed, partition: Partition) -> ErrorCode:
    state, wanted = partition.state, followed.wanted
    epoch = wanted.current_leader_epoch
    if epoch != state.leader_epoch and epoch >= 0:
        fenced = epoch < state.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH
    if not state.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if wanted.fetch_offset < state.log_start:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode.NONE
