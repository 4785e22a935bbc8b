"""Produce (0), versions 3-13: the way in. Read and written by hand, no object per record.

Each partition of the request is judged alone: what is wrong with one never touches another. The
answer leaves when every good one is durable (acks=1), committed (acks=all); acks=0 gets none.
KIP-467 (record errors, v8), KIP-516 (topic ids, v13). Not done: transactions (refused by name). A
batch is looked into only where its topic's rules ask for it (keys, timestamps out of range, another
codec): unlike Kafka, one whose CRC is right and whose records are garbage is stored.
"""

from functools import partial

from chronik.broker.broker import Broker
from chronik.broker.partition import Partition
from chronik.broker.recompression import Damaged
from chronik.handlers.call import Call
from chronik.handlers.produce_answer import ACKS_ALL, ACKS_NONE, Answer
from chronik.model.errors import ErrorCode
from chronik.replica.producers import SequenceRefusedError
from chronik.replica.state import Appended
from chronik.wire.produce import ProducePartition, ProduceRequest, parse_produce
from chronik.wire.records import LOG_APPEND_TIME_FLAG, NO_TIMESTAMP
from chronik.wire.validation import BatchRefusedError, validate

_ACKS = frozenset({ACKS_ALL, ACKS_NONE, 1})
_NOTHING: Damaged = []


def serve(broker: Broker, call: Call) -> None:
    """Appends every partition of the request, then waits for the disk and answers."""
    request = parse_produce(call.api_version, memoryview(call.frame), call.body)
    call.let_go()  # the batches are views: once written, an answer that waits costs no memory
    recompression = broker.recompression
    if recompression.concerns(request, call.peer):
        recompression.start(request, call.peer, partial(_serve, broker, call), call.hang_up)
    else:
        _serve(broker, call, request)


def _serve(
    broker: Broker, call: Call, request: ProduceRequest, damaged: Damaged = _NOTHING
) -> None:
    answer = Answer(broker, call, request)
    for wanted, why in damaged:
        answer.refuse(wanted, ErrorCode.INVALID_RECORD, why)  # the same bytes never get better
    if request.acks in _ACKS and request.transactional_id is None:
        now_ms = broker.clock.now_ms()
        for wanted in request.partitions:
            _append(answer, wanted, now_ms)
        answer.forward_others()
    else:
        code, why = _refusal(request)
        for wanted in request.partitions:
            answer.refuse(wanted, code, why)
    answer.all_asked()


def _refusal(request: ProduceRequest) -> tuple[ErrorCode, str]:
    if request.acks not in _ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be 0, 1 or all, not {request.acks}"
    return (
        ErrorCode.UNSUPPORTED_VERSION,
        "transactions are not served: use an idempotent producer without transactional.id",
    )


def _append(answer: Answer, wanted: ProducePartition, now_ms: int, *, waited: bool = False) -> None:
    partition = _find(answer, wanted, waited=waited)
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
            partition.counters.produced(header.record_count, appended.size)
        is_stamped = header.attributes & LOG_APPEND_TIME_FLAG
        append_time_ms = header.max_timestamp if is_stamped else NO_TIMESTAMP
        answer.wait(wanted, partition, appended, append_time_ms)


def _find(answer: Answer, wanted: ProducePartition, *, waited: bool) -> Partition | None:
    """The partition, where this node leads it; else what becomes of it is noted."""
    broker = answer.broker
    partitions = broker.partitions
    partition, code = partitions.find(wanted.topic, wanted.topic_id, wanted.index)
    if partition is not None and partition.state.is_leader:
        return partition
    leader = partitions.leader_of(wanted.topic, wanted.topic_id, wanted.index)
    if leader >= 0 and leader != broker.node_id and not answer.call.peer.internal:
        answer.leave_to(leader, wanted)
        return None
    known = partitions.is_assigned(wanted.topic, wanted.topic_id, wanted.index)
    if partition is not None or known:
        answer.refuse(wanted, ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node leads it now")
    elif code is ErrorCode.UNKNOWN_TOPIC_ID and not waited:
        _wait_for_topic(answer, wanted)
    else:
        topic = repr(wanted.topic) if wanted.topic is not None else "with this id"
        answer.refuse(wanted, code, f"no partition {wanted.index} of a topic {topic} is here")
    return None


def _wait_for_topic(answer: Answer, wanted: ProducePartition) -> None:
    """The client knows more of the metadata than this node, or less: time will tell."""
    assert wanted.topic_id is not None
    answer.hold()
    # Less than the request's own time, so that it has its answer by then.
    wait_s = answer.timeout_ms / 2000
    resume = partial(_waited_for_topic, answer, wanted)
    answer.broker.unknown_topics.wait(wanted.topic_id, wait_s, resume)


def _waited_for_topic(answer: Answer, wanted: ProducePartition) -> None:
    _append(answer, wanted, answer.broker.clock.now_ms(), waited=True)
    answer.forward_others()
    answer.settle()
