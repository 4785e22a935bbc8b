"""Moving replicas (KIP-455): the new ones are added, catch up, and then the old ones leave."""

from dataclasses import replace

from chronik.cluster.commands import (
    AlterReassignments,
    ControllerSettings,
    Decision,
    PartitionError,
    Reassignment,
)
from chronik.cluster.decide_topics import check_replicas
from chronik.cluster.elections import IsLive, advance, pick_leader
from chronik.cluster.image import ClusterImage, PartitionState
from chronik.cluster.records import PartitionChanged, Record
from chronik.cluster.refused import Refused, refuse_repeated
from chronik.model.errors import ErrorCode


def alter_reassignments(
    image: ClusterImage, command: AlterReassignments, _: ControllerSettings
) -> Decision[tuple[PartitionError, ...]]:
    """Each partition starts to move, goes back, or is refused by itself."""
    records: list[Record] = []
    results = []
    seen: set[tuple[str, int]] = set()
    for wish in command.reassignments:
        try:
            where = (wish.topic, wish.partition)
            refuse_repeated(where in seen, "The partition appears more than once.")
            seen.add(where)
            old = _existing(image, wish)
            new = advance(old, _moved(image, old, wish))
            if new is not old:
                topic_id = image.topics[wish.topic].id
                records.append(PartitionChanged(topic_id, wish.partition, new))
            results.append(PartitionError(wish.topic, wish.partition))
        except Refused as refused:
            results.append(PartitionError(wish.topic, wish.partition, refused.error))
    return Decision(tuple(records), tuple(results))


def completed(state: PartitionState, is_live: IsLive) -> PartitionState:
    """The partition without the leaving replicas, once all that were added are in sync."""
    target = state.target_replicas
    isr = tuple(one for one in target if one in state.isr)
    if not state.reassigning or not isr or not set(state.adding) <= set(isr):
        return state
    moved = replace(state, replicas=target, isr=isr, adding=(), removing=())
    return replace(moved, leader=pick_leader(moved, isr, is_live))


def _existing(image: ClusterImage, wish: Reassignment) -> PartitionState:
    state = image.partition(wish.topic, wish.partition)
    if state is None:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find a partition {wish.partition} of a topic named {wish.topic}.",
        )
    return state


def _moved(image: ClusterImage, old: PartitionState, wish: Reassignment) -> PartitionState:
    if wish.replicas is None:
        if not old.reassigning:
            raise Refused(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
            )
        return _reverted(image, old)
    check_replicas(image, wish.replicas)
    # A second reassignment starts from what the partition had before the first one.
    before = tuple(one for one in old.replicas if one not in old.adding)
    adding = tuple(one for one in wish.replicas if one not in before)
    removing = tuple(one for one in before if one not in wish.replicas)
    replicas = (*wish.replicas, *removing)
    isr = tuple(one for one in old.isr if one in replicas)
    if not isr:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"None of the in-sync replicas {list(old.isr)} would be left; wait for more to catch "
            "up or include one of them.",
        )
    state = replace(old, replicas=replicas, isr=isr, adding=adding, removing=removing)
    state = replace(state, leader=pick_leader(state, isr, image.is_live))
    return completed(state, image.is_live)


def _reverted(image: ClusterImage, old: PartitionState) -> PartitionState:
    replicas = tuple(one for one in old.replicas if one not in old.adding)
    # What was to leave goes back to the end of the list: its first place is not remembered.
    isr = tuple(one for one in old.isr if one in replicas)
    if not isr:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The reassignment cannot be cancelled: only replicas it adds are in sync.",
        )
    state = replace(old, replicas=replicas, isr=isr, adding=(), removing=())
    return replace(state, leader=pick_leader(state, isr, image.is_live))
