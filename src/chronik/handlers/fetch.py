"""Fetch (1), versions 4-18: the way out. Slices of the segment files go to the socket as they are.

A fetch that finds too little sleeps on its partitions and wakes the moment a watermark moves;
nothing is polled. KIP-227 (sessions, v7), KIP-320 (epoch fencing, v9), KIP-392 (a replica in the
client's rack, v11), KIP-516 (topic ids, v13). Followers serve what they know to be committed.
Not done: transactions (every committed record is stable).
"""

from asyncio import TimerHandle

from chronik.broker.broker import Broker
from chronik.broker.fetch_sessions import FetchContext, FetchSession, SessionError, key_of
from chronik.broker.nearest import nearest
from chronik.broker.partition import OffsetError, Partition
from chronik.handlers.call import Call
from chronik.model import limits
from chronik.model.errors import ErrorCode
from chronik.replica.state import ReplicaState
from chronik.storage.errors import OffsetOutOfRangeError
from chronik.trace import fetch_rows
from chronik.trace.fetch_rows import FetchRows
from chronik.trace.packed import Shape
from chronik.wire.fetch import FetchPartition, FetchRequest, parse_fetch
from chronik.wire.fetch_response import (
    FetchResponse,
    FetchResult,
    plain_result,
    write_fetch_response,
)


def serve(broker: Broker, call: Call) -> None:
    """Reads what is there for a consumer; followers have `replica_fetch.py`."""
    answer(broker, call, parse_fetch(call.api_version, memoryview(call.frame), call.body))


def answer(broker: Broker, call: Call, request: FetchRequest) -> None:
    """As `serve`, for a request that is parsed already."""
    try:
        context = broker.fetch_sessions.resolve(request, call.api_version, broker.clock.now_ms())
    except SessionError as error:
        call.reply(write_fetch_response(call.api_version, FetchResponse(error_code=error.code)))
        broker.count(call, error.code)
        return
    _Fetch(broker, call, request, context).attempt()


def _elsewhere(wanted: FetchPartition, partition: Partition, node_id: int) -> FetchResult:
    state = partition.state
    found = plain_result(wanted.index, state.high_watermark, state.log_start)
    return found._replace(preferred_read_replica=node_id)


def _knows_leader(wanted: FetchPartition, state: ReplicaState) -> bool:
    """True where a client asks the leader and is not fenced."""
    epoch = wanted.current_leader_epoch
    return state.is_leader and (epoch == state.leader_epoch or epoch < 0)


class _Fetch:
    """One fetch from its first look to its answer."""

    __slots__ = (
        "_broker",
        "_call",
        "_context",
        "_evidence",
        "_found",
        "_is_plain",
        "_looked_at",
        "_rack",
        "_request",
        "_results",
        "_served",
        "_timer",
        "_waiting_on",
    )

    def __init__(
        self, broker: Broker, call: Call, request: FetchRequest, context: FetchContext
    ) -> None:
        self._broker = broker
        self._call = call
        self._request = request
        self._context = context
        self._results: list[tuple[FetchPartition, FetchResult]] = []
        self._found: list[Partition] = []
        self._served: list[tuple[Partition, int]] = []
        """Those that something was read of, and how many bytes."""
        self._waiting_on: list[Partition] = []
        self._rack = request.rack_id if request.rack_id and broker.selects_by_rack else ""
        self._timer: TimerHandle | None = None
        self._evidence = self._rows() if broker.tracer.on else None
        self._looked_at: list[int] = []
        """Which of the results have evidence: an answer that is full leaves some for the next."""
        self._is_plain = self._evidence is None and not self._rack
        """No evidence is kept and no replica may be nearer: where nothing is, nothing is done."""

    def attempt(self) -> None:
        """Reads every partition; answers when that is enough, else waits for more."""
        request = self._request
        if self._timer is None and self._is_quiet():
            self._wait()
            self._wait_for(request.min_bytes)
            return
        size, settled = self._read_all()
        enough = settled or size >= request.min_bytes or self._is_empty()
        if enough or request.max_wait_ms <= 0 or self._timed_out():
            self._answer(size)
            return
        if self._timer is None:
            self._wait()
        self._wait_for(request.min_bytes - size)

    def _is_quiet(self) -> bool:
        """True where nothing is there to read and nothing is wrong, as whoever follows the logs
        mostly finds it: then nothing need be read to know it, nor a result be made."""
        request, partitions = self._request, self._context.partitions
        may_wait = request.min_bytes > 0 and request.max_wait_ms > 0 and bool(partitions)
        if not may_wait or not self._is_plain:
            return False
        find, found = self._broker.partitions.find, []
        for wanted in partitions:
            partition, _ = find(wanted.topic, wanted.topic_id, wanted.index)
            if partition is None:
                return False
            state = partition.state
            if wanted.fetch_offset != state.high_watermark or not _knows_leader(wanted, state):
                return False
            found.append(partition)
        self._found = found
        return True

    def _is_empty(self) -> bool:
        session = self._context.session
        return not (session.partitions if session is not None else self._context.named)

    def _timed_out(self) -> bool:
        waited_ns = self._broker.clock.monotonic_ns() - self._call.received_ns
        return waited_ns >= self._request.max_wait_ms * 1_000_000

    # -- waiting

    def _wait(self) -> None:
        wait_ms = min(self._request.max_wait_ms, limits.FETCH_WAIT_MS_MAX)
        self._timer = self._broker.loop.call_later(wait_ms / 1000, self._expired)
        self._waiting_on = self._found
        self._call.given_up = self._stop_waiting

    def _wait_for(self, missing: int) -> None:
        """Woken when one partition has its share of what is missing.

        While none has, all of them together do not have enough.
        """
        share = -(-missing // max(1, len(self._waiting_on)))
        for partition in self._waiting_on:
            if share == 1:
                partition.fetch_waiters.add_for_any(self)
            else:
                partition.fetch_waiters.add(partition.committed_bytes + share, self)

    def look_again(self) -> None:
        """Something moved, and it is this fetch's turn."""
        self.attempt()

    def _expired(self) -> None:
        size, _ = self._read_all()
        self._answer(size)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for partition in self._waiting_on:
            partition.fetch_waiters.discard(self)
        self._waiting_on = []

    # -- reading

    def _read_all(self) -> tuple[int, bool]:
        """Bytes found, and whether to wait for more is of no use: a partition failed, or has more
        than the answer may hold. `_results` holds one result each."""
        self._results, self._found, self._looked_at, self._served = [], [], [], []
        if self._timer is not None and self._evidence is not None:
            self._evidence.look()  # the first time is that of its start
        request = self._request
        left = min(request.max_bytes, limits.FETCH_BYTES_MAX)
        enough = max(self._call.peer.enough_bytes, request.min_bytes)
        total, settled = 0, False
        find, is_plain = self._broker.partitions.find, self._is_plain
        for wanted in self._context.partitions:
            partition, code = find(wanted.topic, wanted.topic_id, wanted.index)
            if partition is None:
                if self._evidence is not None:
                    self._trace_missing(self._evidence, wanted)
                self._results.append((wanted, self._not_here(wanted, code)))
                settled = True
                continue
            self._found.append(partition)
            if is_plain and _knows_leader(wanted, partition.state):
                state, offset = partition.state, wanted.fetch_offset
                end, start = state.high_watermark, state.log_start
                if offset == end or (total and not left and start <= offset < end):
                    # It has all, or the answer is full: nothing need be read to say so.
                    self._results.append((wanted, plain_result(wanted.index, end, start)))
                    settled |= offset < end
                    continue
            result, size, settles = self._read(wanted, partition, left, first=total == 0)
            self._results.append((wanted, result))
            settled |= settles
            if size:
                self._served.append((partition, size))
                total += size
                left = max(0, left - size) if total < enough else 0
        return total, settled

    def _not_here(self, wanted: FetchPartition, code: ErrorCode) -> FetchResult:
        if self._broker.partitions.leader_of(wanted.topic, wanted.topic_id, wanted.index) >= 0:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            self._broker.metrics.count_not_leader("Fetch", self._call.client_id)
        return FetchResult(wanted.index, int(code))

    def _read(
        self, wanted: FetchPartition, partition: Partition, left: int, *, first: bool
    ) -> tuple[FetchResult, int, bool]:
        """The result, its bytes, and whether the client is to have it at once."""
        size_max = min(wanted.max_bytes, left)
        if self._evidence is not None and (first or size_max > 0):
            self._trace_look(self._evidence, wanted, partition)
        try:
            partition.check_epoch(wanted.current_leader_epoch)
            partition.check_offset(wanted.fetch_offset)
            if self._rack and (near := self._nearer(partition, wanted.fetch_offset)) >= 0:
                return _elsewhere(wanted, partition, near), 0, True
            read = None
            if first or size_max > 0:
                read = partition.read(wanted.fetch_offset, size_max, at_least_one_batch=first)
        except OffsetError as error:
            return self._failed(wanted, partition, error.code), 0, True
        except OffsetOutOfRangeError:
            return self._failed(wanted, partition, ErrorCode.OFFSET_OUT_OF_RANGE), 0, True
        except OSError:
            return self._failed(wanted, partition, ErrorCode.KAFKA_STORAGE_ERROR), 0, True
        watermark = partition.state.high_watermark
        if read is None:
            slices, size, is_all = [], 0, wanted.fetch_offset >= watermark
        else:
            slices, size, is_all = read.slices, read.size, read.is_all
        if size and self._evidence is not None:
            self._trace(fetch_rows.DATA, wanted, partition, size)
        result = plain_result(wanted.index, watermark, partition.state.log_start, slices)
        return result, size, not is_all

    def _nearer(self, partition: Partition, offset: int) -> int:
        """A replica in the client's rack; -1 where this one is as good."""
        if not partition.state.is_leader:
            return -1
        near = nearest(partition, self._broker.controller.image, self._rack, offset)
        return -1 if near == partition.leader_id else near

    def _failed(self, wanted: FetchPartition, partition: Partition, code: ErrorCode) -> FetchResult:
        self._broker.metrics.count_rejected("Fetch", code)
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._broker.metrics.count_not_leader("Fetch", self._call.client_id)
        if self._evidence is not None:
            self._trace(fetch_rows.REJECTED, wanted, partition, code=(code,))
        return FetchResult(wanted.index, int(code), -1, -1, partition.state.log_start)

    # -- answering

    def _answer(self, size: int) -> None:
        self._stop_waiting()
        if self._evidence is not None:
            self._trace_answer(self._evidence)
        for partition, served in self._served:
            partition.counters.fetched(served)
        response = FetchResponse(self._told(), session_id=self._context.session_id)
        self._call.reply(write_fetch_response(self._call.api_version, response))
        self._broker.count(self._call, ErrorCode.NONE)

    def _told(self) -> list[tuple[str | bytes, list[FetchResult]]]:
        """Within a session only what is new; otherwise every partition that was asked for."""
        session = self._context.session
        told: dict[str | bytes, list[FetchResult]] = {}
        for wanted, result in self._results if session is None else self._news(session):
            topic = wanted.topic_id if wanted.topic_id is not None else wanted.topic or ""
            if topic in told:
                told[topic].append(result)
            else:
                told[topic] = [result]
        return list(told.items())

    def _news(self, session: FetchSession) -> list[tuple[FetchPartition, FetchResult]]:
        """What the client does not know yet; all of it where the session has just begun."""
        is_news, has_begun = session.is_news, not self._context.incremental
        news, served = [], []
        for one in self._results:
            wanted, result = one
            key = key_of(wanted)
            if result.records:
                served.append(key)
            if (
                is_news(key, result.high_watermark, result.log_start_offset)
                or result.records
                or result.error_code
                or result.preferred_read_replica >= 0
                or has_begun
            ):
                news.append(one)
        if served:
            session.served(served)
        return news

    # -- evidence

    def _rows(self) -> FetchRows:
        call, request = self._call, self._request
        who = call.client_id, call.peer.port, call.correlation_id
        asked = f"min_bytes={request.min_bytes} max_wait_ms={request.max_wait_ms}"
        return FetchRows(self._broker.tracer, call.received_ns, *who, asked)

    def _trace_look(self, rows: FetchRows, wanted: FetchPartition, partition: Partition) -> None:
        self._looked_at.append(len(self._results))
        if self._timer is not None:
            self._trace(fetch_rows.WATERMARK, wanted, partition)
            return
        offset, state = wanted.fetch_offset, partition.state
        levels = state.high_watermark, state.log_end
        rows.start_and_look(partition.topic, wanted.index, offset, *levels)

    def _trace_missing(self, rows: FetchRows, wanted: FetchPartition) -> None:
        self._looked_at.append(len(self._results))
        if self._timer is None:
            topic = self._broker.partitions.name_of(wanted.topic, wanted.topic_id)
            rows.start(topic, wanted.index, wanted.fetch_offset)

    def _trace(
        self,
        shape: Shape,
        wanted: FetchPartition,
        partition: Partition,
        *size: int,
        code: tuple[int] | tuple[()] = (),
    ) -> None:
        assert self._evidence is not None
        offset, state = wanted.fetch_offset, partition.state
        levels = state.high_watermark, state.log_end
        topic, index = partition.topic, wanted.index
        self._evidence.add(shape, topic, index, offset, *size, *levels, code=code)

    def _trace_answer(self, rows: FetchRows) -> None:
        rows.look()
        name_of = self._broker.partitions.name_of
        for place in self._looked_at:
            one, result = self._results[place]
            size = sum(map(len, result.records or ()))
            topic = name_of(one.topic, one.topic_id)
            kind = fetch_rows.SERVED if size else fetch_rows.EMPTY
            rows.add(kind, topic, one.index, one.fetch_offset, size)
