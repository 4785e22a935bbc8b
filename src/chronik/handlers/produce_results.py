"""What is known of each partition of a Produce request, and the same question asked of its leader.

A batch whose partition another node leads goes there as it came, and the leader's answer is
translated back: what means "look again" to this node must not mean "give up" to the client.
"""

from chronik.broker.broker import Broker
from chronik.model.errors import ErrorCode
from chronik.wire.messages import produce as messages
from chronik.wire.produce import PartitionResult, ProducePartition
from chronik.wire.records import NO_TIMESTAMP

_NONE = ErrorCode.NONE


class Result:
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


def forwarded(
    results: list[Result], broker: Broker, acks: int, timeout_ms: int
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


def take_over(results: list[Result], answer: messages.ProduceResponse) -> None:
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
