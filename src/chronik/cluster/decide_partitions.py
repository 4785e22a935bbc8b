"""AlterPartition (a leader's ISR changes) and ElectLeaders."""

from collections.abc import Iterator
from dataclasses import replace

from chronik.cluster.commands import (
    OK,
    AlterPartition,
    ControllerSettings,
    Decision,
    ElectionType,
    ElectLeaders,
    Error,
    IsrChange,
    IsrChanged,
    PartitionError,
    PartitionsAltered,
)
from chronik.cluster.decide_brokers import known_broker
from chronik.cluster.elections import advance, pick_leader
from chronik.cluster.image import NO_LEADER, ClusterImage, PartitionState
from chronik.cluster.reassignment import completed
from chronik.cluster.records import PartitionChanged, Record
from chronik.cluster.refused import Refused
from chronik.model.errors import ErrorCode


def alter_partition(
    image: ClusterImage, command: AlterPartition, _: ControllerSettings
) -> Decision[PartitionsAltered]:
    """Each partition is checked against its epochs; what passed is changed (KIP-497)."""
    try:
        known_broker(image, command.broker_id, command.broker_epoch)
    except Refused as refused:
        return Decision((), PartitionsAltered(refused.error))
    records: list[Record] = []
    results = []
    seen: set[tuple[bytes, int]] = set()
    for change in command.changes:
        where = (change.topic_id, change.partition)
        try:
            old = _partition(image, change, repeated=where in seen)
            seen.add(where)
            new = _altered(image, old, change, command.broker_id)
            if new is not old:
                records.append(PartitionChanged(*where, new))
            results.append(_answer(change, old, new))
        except Refused as refused:
            results.append(IsrChanged(*where, refused.error))
    return Decision(tuple(records), PartitionsAltered(OK, tuple(results)))


def _partition(image: ClusterImage, change: IsrChange, *, repeated: bool) -> PartitionState:
    if repeated:
        raise Refused(ErrorCode.INVALID_REQUEST, "The partition appears more than once.")
    topic = image.topic_by_id(change.topic_id)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    if not 0 <= change.partition < len(topic.partitions):
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Topic {topic.name} has no partition {change.partition}.",
        )
    return topic.partitions[change.partition]


def _altered(
    image: ClusterImage, old: PartitionState, change: IsrChange, broker_id: int
) -> PartitionState:
    isr = tuple(one for one, _ in change.isr)
    _check_epochs(old, change)
    _check_isr(old, isr, broker_id)
    _check_eligible(image, change)
    # The members keep the replicas' order, so equal sets are equal states.
    ordered = tuple(one for one in old.replicas if one in isr)
    if set(ordered) == set(old.isr):
        return old
    return advance(old, completed(replace(old, isr=ordered), image.is_live))


def _check_epochs(old: PartitionState, change: IsrChange) -> None:
    if change.leader_epoch > old.leader_epoch or change.partition_epoch > old.partition_epoch:
        raise Refused(
            ErrorCode.NOT_CONTROLLER, "The leader knows more than this controller; try another one."
        )
    if change.leader_epoch < old.leader_epoch:
        raise Refused(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"The leader epoch is {old.leader_epoch}, not {change.leader_epoch}: another leader "
            "was elected.",
        )
    if change.partition_epoch < old.partition_epoch:
        raise Refused(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"The partition epoch is {old.partition_epoch}, not {change.partition_epoch}: read the "
            "partition again and propose anew.",
        )


def _check_isr(old: PartitionState, isr: tuple[int, ...], broker_id: int) -> None:
    if broker_id != old.leader:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Broker {broker_id} does not lead the partition, broker {old.leader} does.",
        )
    if len(set(isr)) != len(isr) or not set(isr) <= set(old.replicas):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"The ISR {list(isr)} is not part of the replicas {list(old.replicas)}.",
        )
    if broker_id not in isr:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"The ISR {list(isr)} does not include the leader {old.leader}.",
        )


def _check_eligible(image: ClusterImage, change: IsrChange) -> None:
    for broker_id, epoch in change.isr:
        broker = image.brokers.get(broker_id)
        if broker is None or not broker.live or epoch not in {-1, broker.epoch}:
            raise Refused(
                ErrorCode.INELIGIBLE_REPLICA,
                f"Broker {broker_id} cannot be in the ISR now: it is fenced, shutting down, or was "
                "registered again.",
            )


def _answer(change: IsrChange, old: PartitionState, new: PartitionState) -> IsrChanged:
    error = OK
    if new.leader != old.leader:
        error = Error(ErrorCode.NEW_LEADER_ELECTED, f"Broker {new.leader} leads from now on.")
    return IsrChanged(
        change.topic_id,
        change.partition,
        error,
        new.leader,
        new.leader_epoch,
        new.isr,
        new.partition_epoch,
    )


def elect_leaders(
    image: ClusterImage, command: ElectLeaders, _: ControllerSettings
) -> Decision[tuple[PartitionError, ...]]:
    """Preferred leaders take over again, or partitions without a leader get any live replica."""
    everything = command.partitions is None
    records: list[Record] = []
    results = []
    for topic, index in _named(image, command):
        try:
            records.append(_elected(image, topic, index, command.election_type))
            results.append(PartitionError(topic, index))
        except Refused as refused:
            if not (everything and refused.error.code is ErrorCode.ELECTION_NOT_NEEDED):
                results.append(PartitionError(topic, index, refused.error))
    return Decision(tuple(records), tuple(results))


def _named(image: ClusterImage, command: ElectLeaders) -> Iterator[tuple[str, int]]:
    if command.partitions is None:
        yield from ((topic.name, index) for topic, index, _ in image.partitions())
    else:
        yield from dict.fromkeys(command.partitions)


def _elected(image: ClusterImage, topic: str, index: int, election_type: int) -> Record:
    state = image.partition(topic, index)
    if state is None:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic or partition: {topic}-{index}"
        )
    if election_type == ElectionType.PREFERRED:
        new = _preferred(image, state)
    elif election_type == ElectionType.UNCLEAN:
        new = _unclean(image, state)
    else:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}.")
    return PartitionChanged(image.topics[topic].id, index, advance(state, new))


def _preferred(image: ClusterImage, state: PartitionState) -> PartitionState:
    wanted = state.preferred_leader
    if state.leader == wanted:
        raise Refused(
            ErrorCode.ELECTION_NOT_NEEDED, f"The preferred leader {wanted} leads already."
        )
    if wanted not in state.isr or not image.is_live(wanted):
        raise Refused(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"The preferred leader {wanted} is not in sync or not live.",
        )
    return replace(state, leader=wanted)


def _unclean(image: ClusterImage, state: PartitionState) -> PartitionState:
    if state.leader != NO_LEADER:
        raise Refused(ErrorCode.ELECTION_NOT_NEEDED, f"Broker {state.leader} leads already.")
    leader = pick_leader(state, state.isr, image.is_live)
    if leader != NO_LEADER:
        return replace(state, leader=leader)
    leader = next((one for one in state.replicas if image.is_live(one)), NO_LEADER)
    if leader == NO_LEADER:
        raise Refused(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica of the partition is live."
        )
    return replace(state, leader=leader, isr=(leader,))
