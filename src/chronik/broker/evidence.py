"""Trace events: what a partition did, who leads, who is in sync, what another node was asked.

Those of a partition are called only where the tracer is on. Those on the path of every batch pack
their columns themselves (`trace/packed.py` has the order): a fifth of what `emit` costs.
"""

from typing import TYPE_CHECKING

from chronik.cluster.image import PartitionState
from chronik.replica.state import Appended
from chronik.trace.events import EventKind
from chronik.trace.packed import UNFIT, Shape, pack_two, shape
from chronik.trace.tracer import Tracer

if TYPE_CHECKING:
    from chronik.broker.partition import Partition
    from chronik.wire.records import BatchHeader

_APPEND_COLUMNS = (
    "base_offset",
    "last_offset",
    "record_count",
    "bytes",
    "high_watermark",
    "log_end",
    "producer_id",
    "partition",
    "leader_epoch",
    "base_sequence",
    "topic",
    "producer_epoch",
)
APPENDED = shape(EventKind.APPENDED, *_APPEND_COLUMNS)
FOLLOWER_APPENDED = shape(EventKind.FOLLOWER_APPENDED, *_APPEND_COLUMNS)
_pack_append = APPENDED.pack
_FSYNCED = shape(
    EventKind.FSYNCED, "log_end", "duration_us", "partition", "leader_epoch", "topic", "detail"
)
_WATERMARK = shape(
    EventKind.WATERMARK, "high_watermark", "log_end", "partition", "leader_epoch", "topic"
)
_pack_durable_and_moved = pack_two(_FSYNCED, _WATERMARK)
_REPLICATED = shape(EventKind.REPLICATED, "log_end", "partition", "leader_epoch", "peer", "topic")


def trace_append(
    tracer: Tracer, shape: Shape, partition: "Partition", appended: Appended, header: "BatchHeader"
) -> None:
    """A batch has its place in the log; the shape is `APPENDED` or `FOLLOWER_APPENDED`."""
    state = partition.state
    # A slice of a named tuple, taken apart, costs as little as one of its fields by name.
    base_offset, last_offset, _, leader_epoch, size, producer_id = appended[1:7]
    producer_epoch, base_sequence, record_count = header[10:]
    try:
        # fmt: off
        tracer.put(_pack_append(
            tracer.mono_ns(), base_offset, last_offset, record_count, size,
            state.high_watermark, state.log_end, producer_id,
            partition.index, leader_epoch, base_sequence,
            tracer.names.numbers[partition.topic], producer_epoch, shape.number,
        ))
        # fmt: on
    except UNFIT as error:
        tracer.count_lost(1, str(error))


def trace_durable(tracer: Tracer, partition: "Partition", duration_us: int, *, moved: bool) -> None:
    """The disk has what was written, and the watermark may have moved by it."""
    state, index = partition.state, partition.index
    epoch, number_of = state.leader_epoch, tracer.names.numbers
    now_ns = tracer.mono_ns()
    try:
        topic, how = number_of[partition.topic], number_of["fsync" if partition.sync else "os"]
        # fmt: off
        if moved:
            tracer.put(_pack_durable_and_moved(
                now_ns, state.durable_end, duration_us, index, epoch, topic, how, _FSYNCED.number,
                now_ns, state.high_watermark, state.log_end, index, epoch, topic, _WATERMARK.number,
            ))
        else:
            tracer.put(_FSYNCED.pack(
                now_ns, state.durable_end, duration_us, index, epoch, topic, how, _FSYNCED.number
            ))
        # fmt: on
    except UNFIT as error:
        tracer.count_lost(1 + moved, str(error))


def trace_watermark(tracer: Tracer, partition: "Partition") -> None:
    """The watermark moved."""
    state = partition.state
    try:
        # fmt: off
        tracer.put(_WATERMARK.pack(
            tracer.mono_ns(), state.high_watermark, state.log_end, partition.index,
            state.leader_epoch, tracer.names.numbers[partition.topic], _WATERMARK.number,
        ))
        # fmt: on
    except UNFIT as error:
        tracer.count_lost(1, str(error))


def trace_replicated(tracer: Tracer, partition: "Partition", node_id: int, log_end: int) -> None:
    """A follower has everything up to here."""
    try:
        # fmt: off
        tracer.put(_REPLICATED.pack(
            tracer.mono_ns(), log_end, partition.index, partition.state.leader_epoch, node_id,
            tracer.names.numbers[partition.topic], _REPLICATED.number,
        ))
        # fmt: on
    except UNFIT as error:
        tracer.count_lost(1, str(error))


def trace_cut(tracer: Tracer, partition: "Partition") -> None:
    """What the disk refused is no longer part of the log."""
    tracer.emit(
        EventKind.TRUNCATED,
        partition.topic,
        partition.index,
        partition.state.leader_epoch,
        log_end=partition.state.log_end,
        detail="the disk refused the rest",
    )


def trace_assignment(
    tracer: Tracer, topic: str, index: int, old: PartitionState | None, new: PartitionState
) -> None:
    """A partition's new leader and its new in-sync replicas, as this node learns them."""
    if not tracer.on:
        return
    if old is None or old.leader_epoch != new.leader_epoch:
        tracer.emit(
            EventKind.ELECTION, topic, index, leader_epoch=new.leader_epoch, peer=new.leader
        )
    if old is None or old.isr != new.isr:
        tracer.emit(
            EventKind.ISR_CHANGE,
            topic,
            index,
            leader_epoch=new.leader_epoch,
            peer=new.leader,
            detail=",".join(map(str, new.isr)),
        )


def trace_controller(tracer: Tracer, leader: int, term: int) -> None:
    """Another node, or this one, leads the metadata log; -1 is nobody."""
    if tracer.on:
        tracer.emit(EventKind.ELECTION, leader_epoch=term, peer=leader)


def trace_forwarded(
    tracer: Tracer, topic: str | None, index: int, leader: int, size: int, client_id: str | None
) -> None:
    """A partition of a request went to its leader."""
    if tracer.on:
        tracer.emit(EventKind.FORWARDED, topic, index, bytes=size, client_id=client_id, peer=leader)
