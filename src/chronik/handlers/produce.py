"""Produce (0), versions 3-13: the way in. Read and written by hand, no object per record.

Each partition of the request is judged alone: what is wrong with one never touches another. The
answer leaves when every good one is durable (acks=1), committed (acks=all); acks=0 gets none.
KIP-467 (record errors, v8), KIP-516 (topic ids, v13). Not done: transactions (refused by name).
"""

from asyncio import TimerHandle
from functools import partial

from chronik.broker.broker import Broker
from chronik.broker.partition import Partition
from chronik.broker.recompression import Damaged
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.replica.producers import SequenceRefusedError
from chronik.replica.state import Appended, Duplicate
from chronik.trace.events import EventKind
from chronik.wire.messages import produce as messages
from chronik.wire.produce import (
    PartitionResult,
    ProducePartition,
    ProduceRequest,
    parse_produce,
    write_one_result,
    write_produce_response,
)
from chronik.wire.records import NO_TIMESTAMP
from chronik.wire.validation import BatchRefusedError, validate

_NOTHING: Damaged = []
ACKS_NONE = 0
ACKS_ALL = -1
_NONE = ErrorCode.NONE
_RECEIVED = EventKind.RECEIVED
_ACKED = EventKind.ACKED
_REJECTED = EventKind.REJECTED


def serve(broker: Broker, call: Call) -> None:
    """Appends every partition of the request, then waits for the disk and answers."""
    request = parse_produce(call.api_version, memoryview(call.frame), call.body)
    recompression = broker.recompression
    if recompression.concerns(request, call.peer):
        recompression.start(request, call.peer, partial(_serve, broker, call), call.hang_up)
    else:
        _serve(broker, call, request)


def _serve(
    broker: Broker, call: Call, request: ProduceRequest, damaged: Damaged = _NOTHING
) -> None:
    answer = _Answer(broker, call, request)
    for wanted, why in damaged:
        answer.refuse(wanted, ErrorCode.INVALID_RECORD, why)  # the same bytes never get better
    refusal = _refusal(request)
    now_ms = broker.clock.now_ms()
    for wanted in request.partitions:
        if refusal is not None:
            answer.refuse(wanted, *refusal)
        else:
            _append(answer, wanted, now_ms)
    answer.forward_others()
    answer.all_asked()


def _refusal(request: ProduceRequest) -> tuple[ErrorCode, str] | None:
    if request.acks not in {ACKS_ALL, ACKS_NONE, 1}:
        return ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be 0, 1 or all, not {request.acks}"
    if request.transactional_id is not None:
        return (
            ErrorCode.UNSUPPORTED_VERSION,
            "transactions are not served: use an idempotent producer without transactional.id",
        )
    return None


def _append(
    answer: "_Answer", wanted: ProducePartition, now_ms: int, *, waited: bool = False
) -> None:
    partition = answer.find(wanted, waited=waited)
    if partition is None:
        return
    if answer.tracing:
        answer.trace_received(wanted, partition)
    if answer.acks == ACKS_ALL and partition.isr_size < partition.config.min_insync_replicas:
        answer.refuse(
            wanted,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{partition.isr_size} replicas are in sync, min.insync.replicas asks for "
            f"{partition.config.min_insync_replicas}",
        )
        return
    try:
        batch, header = validate(wanted.records, answer.call.api_version, partition.rules, now_ms)
        appended = partition.append(batch, header, now_ms)
    except BatchRefusedError as error:
        answer.refuse(wanted, error.code, str(error), error.records)
    except SequenceRefusedError as error:
        answer.refuse(wanted, error.code, str(error))
    else:
        if isinstance(appended, Appended):
            answer.broker.commit.add(partition)
            partition.counters.produced(header.record_count, header.size)
        append_time_ms = header.max_timestamp if header.is_log_append_time else NO_TIMESTAMP
        answer.wait(wanted, partition, appended, append_time_ms)


def _forwarded(
    results: list["_Result"], broker: Broker, acks: int, timeout_ms: int
) -> messages.ProduceRequest:
    """The same batches for their leader, by topic id. acks=0 becomes 1: this node wants to know."""
    topics: dict[bytes, list[messages.PartitionProduceData]] = {}
    for result in results:
        wanted = result.wanted
        result.topic_id = wanted.topic_id or broker.partitions.id_of(wanted.topic or "")
        records = bytes(wanted.records) if wanted.records is not None else None
        data = messages.PartitionProduceData(index=wanted.index, records=records)
        topics.setdefault(result.topic_id, []).append(data)
    return messages.ProduceRequest(
        acks=acks or 1,
        timeout_ms=timeout_ms,
        topic_data=[
            messages.TopicProduceData(topic_id=one, partition_data=many)
            for one, many in topics.items()
        ],
    )


def _take_over(results: list["_Result"], answer: messages.ProduceResponse) -> None:
    """The leader's answer, partition by partition in the order asked."""
    answered = {
        (topic.topic_id, one.index): one
        for topic in answer.responses
        for one in topic.partition_responses
    }
    for result in results:
        one = answered.get((result.topic_id, result.wanted.index))
        if one is None:
            result.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, "its leader did not speak of it")
            continue
        if one.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # Batches before it may have failed here when the leader changed. Its producer shall
            # send all of them anew in order, not give its sequence up and send some of them twice.
            result.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node leads it now")
            continue
        if one.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
            # This node knows the topic; to the client it must not look deleted.
            result.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, "its leader does not know of it yet")
            continue
        result.code = ErrorCode(one.error_code)
        result.message = one.error_message
        result.base_offset = one.base_offset
        result.append_time_ms = one.log_append_time_ms
        result.log_start = one.log_start_offset
        result.records = tuple(
            (e.batch_index, e.batch_index_error_message or "") for e in one.record_errors
        )


class _Result:
    """What is known of one partition so far."""

    __slots__ = (
        "append_time_ms",
        "base_offset",
        "code",
        "last_offset",
        "log_start",
        "message",
        "records",
        "topic_id",
        "wanted",
    )

    def __init__(self, wanted: ProducePartition) -> None:
        self.wanted = wanted
        self.code = _NONE
        self.base_offset = self.last_offset = -1
        self.append_time_ms = NO_TIMESTAMP
        self.log_start = -1
        self.records: tuple[tuple[int, str], ...] = ()
        self.message: str | None = None
        self.topic_id = b""

    def fail(self, code: ErrorCode, message: str) -> None:
        """The batch is not, or not surely, in the log."""
        self.code, self.message = code, message
        self.base_offset = self.last_offset = self.append_time_ms = self.log_start = -1

    def encoded(self) -> PartitionResult:
        """As the wire room wants it."""
        return PartitionResult(
            self.wanted.index,
            self.code,
            self.base_offset,
            self.append_time_ms,
            self.log_start,
            self.records,
            self.message,
        )


class _Answer:
    """The results of one request as they come in; sent when the last is there."""

    __slots__ = (
        "_asked",
        "_elsewhere",
        "_open",
        "_results",
        "_timer",
        "acks",
        "broker",
        "call",
        "timeout_ms",
        "tracing",
    )

    def __init__(self, broker: Broker, call: Call, request: ProduceRequest) -> None:
        self.broker = broker
        self.call = call
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.tracing = broker.tracer.on
        self._asked = False
        self._open = 0
        self._results: list[_Result] = []
        self._elsewhere: dict[int, list[_Result]] = {}
        """By leader: what another node appends."""
        self._timer: TimerHandle | None = None

    def find(self, wanted: ProducePartition, *, waited: bool = False) -> Partition | None:
        """The partition, where this node leads it; else what becomes of it is noted."""
        partitions = self.broker.partitions
        partition, code = partitions.find(wanted.topic, wanted.topic_id, wanted.index)
        if partition is not None and partition.state.is_leader:
            return partition
        leader = partitions.leader_of(wanted.topic, wanted.topic_id, wanted.index)
        if leader >= 0 and leader != self.broker.node_id and not self.call.peer.internal:
            result = _Result(wanted)
            self._results.append(result)
            self._elsewhere.setdefault(leader, []).append(result)
            return None
        known = partitions.is_assigned(wanted.topic, wanted.topic_id, wanted.index)
        if partition is not None or known:
            self.refuse(wanted, ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node leads it now")
        elif code is ErrorCode.UNKNOWN_TOPIC_ID and not waited:
            self._wait_for_topic(wanted)
        else:
            topic = repr(wanted.topic) if wanted.topic is not None else "with this id"
            self.refuse(wanted, code, f"no partition {wanted.index} of a topic {topic} is here")
        return None

    def _wait_for_topic(self, wanted: ProducePartition) -> None:
        """The client knows more of the metadata than this node, or less: time will tell."""
        assert wanted.topic_id is not None
        self._open += 1
        # Less than the request's own time, so that it has its answer by then.
        wait_s = self.timeout_ms / 2000
        resume = partial(self._waited_for_topic, wanted)
        self.broker.unknown_topics.wait(wanted.topic_id, wait_s, resume)

    def _waited_for_topic(self, wanted: ProducePartition) -> None:
        _append(self, wanted, self.broker.clock.now_ms(), waited=True)
        self.forward_others()
        self._open -= 1
        if self._open == 0 and self._asked:
            self._send()

    def forward_others(self) -> None:
        """Asks the other leaders; this answer waits for theirs."""
        elsewhere, self._elsewhere = self._elsewhere, {}
        for leader, results in elsewhere.items():
            self._open += 1
            self.broker.spawn(self._forward(leader, results))

    async def _forward(self, leader: int, results: list[_Result]) -> None:
        request = _forwarded(results, self.broker, max(self.acks, ACKS_ALL), self.timeout_ms)
        answer = await self.broker.forwarding.produce(leader, request, self.call.client_id)
        if answer is not None:
            _take_over(results, answer)
        for result in results:
            if answer is None:
                result.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, "its leader does not answer")
            if result.code is not ErrorCode.NONE:
                self.broker.metrics.count_rejected("Produce", result.code)
        self._open -= 1
        if self._open == 0:
            self._send()

    def refuse(
        self,
        wanted: ProducePartition,
        code: ErrorCode,
        message: str,
        records: tuple[tuple[int, str], ...] = (),
    ) -> None:
        """This partition's batch is not taken."""
        result = _Result(wanted)
        result.fail(code, message)
        result.records = records
        self._results.append(result)
        self.broker.metrics.count_rejected("Produce", code)

    def wait(
        self,
        wanted: ProducePartition,
        partition: Partition,
        appended: Appended | Duplicate,
        append_time_ms: int,
    ) -> None:
        """Notes the result, good as soon as the partition has reached the batch's end."""
        result = _Result(wanted)
        result.base_offset, result.last_offset = appended.base_offset, appended.last_offset
        result.append_time_ms = append_time_ms
        result.log_start = partition.state.log_start
        self._results.append(result)
        waiters, reached = partition.waiters_for(committed=self.acks == ACKS_ALL)
        end_offset = appended.last_offset + 1
        if reached < end_offset:  # else a duplicate of what was acknowledged before
            self._open += 1
            waiters.add(end_offset, partial(self._released, result))

    def _released(self, result: _Result, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            result.fail(code, "the disk refused the batch; it was not written")
            self.broker.metrics.count_rejected("Produce", code)
        self._open -= 1
        if self._open == 0 and self._asked:
            self._send()

    def all_asked(self) -> None:
        """Every partition was tried; sends at once where nothing is left to wait for."""
        self._asked = True
        if self._open == 0:
            self._send()
        elif self.acks == ACKS_ALL:
            self._timer = self.broker.loop.call_later(self.timeout_ms / 1000, self._timed_out)

    def _timed_out(self) -> None:
        for result in self._results:
            if result.code is ErrorCode.NONE:
                result.fail(
                    ErrorCode.REQUEST_TIMED_OUT, "the replicas did not confirm the batch in time"
                )
        self._send()

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        call = self.call
        if call.answer is not None:
            return  # timed out before; what was released since is in the log all the same
        if self.tracing:
            self._trace_acked()
        code = 0
        for one in self._results:
            if one.code is not _NONE:
                code = one.code
                break
        if self.acks != ACKS_NONE:
            call.reply((self._encoded(failed=bool(code)),))
        elif code:
            call.hang_up()  # the only sign that an acks=0 producer can get
        else:
            call.no_reply()
        if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.broker.metrics.count_not_leader("Produce", call.client_id)
        self.broker.count(call, code)

    def _encoded(self, *, failed: bool) -> bytes:
        version, results = self.call.api_version, self._results
        if failed or len(results) != 1:
            return write_produce_response(version, self._by_topic())
        (one,) = results
        topic, topic_id, index, _ = one.wanted
        return write_one_result(
            version,
            topic_id if topic_id is not None else topic or "",
            index,
            one.base_offset,
            one.append_time_ms,
            one.log_start,
        )

    def _by_topic(self) -> list[tuple[str | bytes, list[PartitionResult]]]:
        topics: dict[str | bytes, list[PartitionResult]] = {}
        for result in self._results:
            wanted = result.wanted
            topic = wanted.topic_id if wanted.topic_id is not None else wanted.topic or ""
            topics.setdefault(topic, []).append(result.encoded())
        return list(topics.items())

    # -- evidence

    def trace_received(self, wanted: ProducePartition, partition: Partition) -> None:
        """The batch came off the socket."""
        self.broker.tracer.emit(
            _RECEIVED,
            partition.topic,
            wanted.index,
            bytes=len(wanted.records or b""),
            acks=self.acks,
            client_id=self.call.client_id,
            connection_id=self.call.peer.port,
            correlation_id=self.call.correlation_id,
        )

    def _trace_acked(self) -> None:
        took_us = (self.broker.clock.monotonic_ns() - self.call.received_ns) // 1000
        for result in self._results:
            self.broker.tracer.emit(
                _REJECTED if result.code else _ACKED,
                self.broker.partitions.name_of(result.wanted.topic, result.wanted.topic_id),
                result.wanted.index,
                base_offset=result.base_offset,
                last_offset=result.last_offset,
                acks=self.acks,
                client_id=self.call.client_id,
                connection_id=self.call.peer.port,
                correlation_id=self.call.correlation_id,
                error_code=result.code,
                duration_us=took_us,
                detail=result.message,
            )
