"""The one answer to a Produce request: gathered from its partitions, sent when the last is known.

The handler (`produce.py`) notes here what was refused, what was appended and what another node
leads. Waiters of the partitions, answers of other leaders and the request's timer come back here.
"""

from asyncio import TimerHandle
from functools import partial

from chronik.broker.broker import Broker
from chronik.broker.partition import Partition
from chronik.handlers.call import Call
from chronik.handlers.produce_results import Result, forwarded, take_over
from chronik.model.errors import ErrorCode
from chronik.replica.state import Appended, Duplicate
from chronik.trace.events import EventKind
from chronik.trace.packed import UNFIT, shape
from chronik.wire.produce import (
    PartitionResult,
    ProducePartition,
    ProduceRequest,
    write_one_result,
    write_produce_response,
)

ACKS_NONE = 0
ACKS_ALL = -1
_NONE = ErrorCode.NONE
_RECEIVED = shape(
    EventKind.RECEIVED,
    *("bytes", "connection_id", "partition", "correlation_id", "topic", "client_id", "acks"),
)
_ANSWER_COLUMNS = (
    *("base_offset", "last_offset", "connection_id", "duration_us", "partition", "correlation_id"),
    *("topic", "client_id", "detail", "acks", "error_code"),
)
_ACKED = shape(EventKind.ACKED, *_ANSWER_COLUMNS)
_REJECTED = shape(EventKind.REJECTED, *_ANSWER_COLUMNS)
_pack_received, _pack_answer = _RECEIVED.pack, _ACKED.pack


class Answer:
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
        self._results: list[Result] = []
        self._elsewhere: dict[int, list[Result]] = {}
        """By leader: what another node appends."""
        self._timer: TimerHandle | None = None

    def leave_to(self, leader: int, wanted: ProducePartition) -> None:
        """Another node appends this batch: `forward_others` asks it."""
        result = Result(wanted)
        self._results.append(result)
        self._elsewhere.setdefault(leader, []).append(result)

    def hold(self) -> None:
        """One partition is not decided yet: the answer waits for `settle`."""
        self._open += 1

    def settle(self) -> None:
        """What `hold` waited for is known."""
        self._open -= 1
        if self._open == 0 and self._asked:
            self._send()

    def forward_others(self) -> None:
        """Asks the other leaders; this answer waits for theirs."""
        if not self._elsewhere:
            return
        elsewhere, self._elsewhere = self._elsewhere, {}
        for leader, results in elsewhere.items():
            self.hold()
            self.broker.spawn(self._forward(leader, results))

    async def _forward(self, leader: int, results: list[Result]) -> None:
        request = forwarded(results, self.broker, max(self.acks, ACKS_ALL), self.timeout_ms)
        answer = await self.broker.forwarding.produce(leader, request, self.call.client_id)
        if answer is not None:
            take_over(results, answer)
        for result in results:
            if answer is None:
                result.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, "its leader does not answer")
            if result.code is not ErrorCode.NONE:
                self.broker.metrics.count_rejected("Produce", result.code)
        self.settle()

    def refuse(
        self,
        wanted: ProducePartition,
        code: ErrorCode,
        message: str,
        records: tuple[tuple[int, str], ...] = (),
    ) -> None:
        """This partition's batch is not taken."""
        result = Result(wanted)
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
        topic, topic_id, index, _ = wanted
        result = Result(ProducePartition(topic, topic_id, index, None))  # the log has the records
        result.base_offset, result.last_offset = appended.base_offset, appended.last_offset
        result.append_time_ms = append_time_ms
        result.log_start = partition.state.log_start
        self._results.append(result)
        waiters, reached = partition.waiters_for(committed=self.acks == ACKS_ALL)
        end_offset = appended.last_offset + 1
        if reached < end_offset:  # else a duplicate of what was acknowledged before
            self._open += 1
            waiters.add(end_offset, partial(self._released, result))

    def _released(self, result: Result, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            result.fail(code, "the disk refused the batch; send it again")
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
            call.reply_briefly(self._encoded(failed=bool(code)))
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
        tracer, call = self.broker.tracer, self.call
        number_of = tracer.names.numbers
        try:
            # fmt: off
            tracer.put(_pack_received(  # in the order of `packed.FIELDS`
                call.received_ns, len(wanted.records or b""), call.peer.port, wanted.index,
                call.correlation_id, number_of[partition.topic], number_of[call.client_id],
                self.acks, _RECEIVED.number,
            ))
            # fmt: on
        except UNFIT as error:
            tracer.count_lost(1, str(error))

    def _trace_acked(self) -> None:
        tracer, call = self.broker.tracer, self.call
        number_of, now_ns = tracer.names.numbers, tracer.mono_ns()
        port, correlation_id = call.peer.port, call.correlation_id
        took_us = (now_ns - call.received_ns) // 1000
        for result in self._results:
            topic, topic_id, index, _ = result.wanted
            if topic_id is not None:
                topic = self.broker.partitions.name_of(topic, topic_id)
            kind = _REJECTED if result.code else _ACKED
            try:
                # fmt: off
                tracer.put(_pack_answer(
                    now_ns, result.base_offset, result.last_offset, port, took_us, index,
                    correlation_id, number_of[topic], number_of[call.client_id],
                    number_of[result.message], self.acks, result.code, kind.number,
                ))
                # fmt: on
            except UNFIT as error:
                tracer.count_lost(1, str(error))
