"""A broker's life in the cluster: registered, unfenced, fenced, going away, gone; producer ids."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from chronik.cluster.commands import (
    OK,
    PRODUCER_ID_BLOCK,
    AllocateProducerIds,
    BrokerHeartbeat,
    ControllerSettings,
    CreateCluster,
    Decision,
    Error,
    FenceBroker,
    Heartbeat,
    ProducerIds,
    RegisterBroker,
    Registration,
    UnregisterBroker,
)
from chronik.cluster.elections import UncleanRule, advance, settle, settle_all, without_disk
from chronik.cluster.image import NO_LEADER, Broker, ClusterImage, PartitionState
from chronik.cluster.records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerShuttingDown,
    BrokerUnfenced,
    BrokerUnregistered,
    ClusterCreated,
    PartitionChanged,
    ProducerIdsAllocated,
    Record,
)
from chronik.cluster.refused import Refused
from chronik.model.configs import LONG_MAX
from chronik.model.errors import ErrorCode
from chronik.model.topic_configs import base_config, resolve

_NOWHERE: Final = frozenset({"", "0.0.0.0", "::", "[::]"})  # noqa: S104 - refused, not bound


def create_cluster(
    image: ClusterImage, command: CreateCluster, _: ControllerSettings
) -> Decision[Error]:
    """The first command; again with the same id it changes nothing."""
    if image.cluster_id == command.cluster_id:
        return Decision((), OK)
    if image.cluster_id:
        return Decision((), Error(ErrorCode.INCONSISTENT_CLUSTER_ID, _other_cluster(image)))
    return Decision((ClusterCreated(command.cluster_id),), OK)


def _other_cluster(image: ClusterImage) -> str:
    return f"This is cluster {image.cluster_id}: the node's data belongs to another one."


def register_broker(
    image: ClusterImage, command: RegisterBroker, settings: ControllerSettings
) -> Decision[Registration]:
    """A new process gets a new epoch and starts fenced; the same process keeps its epoch."""
    try:
        _check_registration(image, command)
    except Refused as refused:
        return Decision((), Registration(refused.error))
    old = image.brokers.get(command.broker_id)
    same = old is not None and old.incarnation_id == command.incarnation_id
    epoch = old.epoch if old is not None and same else image.next_broker_epoch
    record = BrokerRegistered(
        command.broker_id,
        epoch,
        command.incarnation_id,
        command.endpoints,
        command.rack,
        old.fenced if old is not None and same else True,
        old.in_controlled_shutdown if old is not None and same else False,
        command.directory_id,
    )
    records: list[Record] = []
    if old is not None and _is_other_disk(old, command):
        records += _lost(image, command.broker_id, settings)
    elif old is not None and not same and not old.fenced:
        # The earlier process died without a word: what it led is led by others from here on.
        records += _restarted(image, command.broker_id, settings)
    elif same and _unchanged(old, record):
        return Decision((), Registration(OK, epoch))
    return Decision((*records, record), Registration(OK, epoch))


def _is_other_disk(old: Broker, command: RegisterBroker) -> bool:
    known = old.directory_id and command.directory_id
    return bool(known) and old.directory_id != command.directory_id


def _unchanged(old: Broker | None, record: BrokerRegistered) -> bool:
    return old is not None and (old.endpoints, old.rack) == (record.endpoints, record.rack)


def _check_registration(image: ClusterImage, command: RegisterBroker) -> None:
    if command.cluster_id is not None and command.cluster_id != image.cluster_id:
        raise Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, _other_cluster(image))
    if command.broker_id < 0:
        raise Refused(
            ErrorCode.INVALID_REGISTRATION, f"{command.broker_id} is not a node id: use 0 or more."
        )
    listeners = {one.listener for one in command.endpoints}
    if not listeners or len(listeners) != len(command.endpoints):
        raise Refused(
            ErrorCode.INVALID_REGISTRATION,
            "A broker registers with one address for each of its listeners, and at least one.",
        )
    for one in command.endpoints:
        if one.host in _NOWHERE or not 0 < one.port < 65536:
            raise Refused(
                ErrorCode.INVALID_REGISTRATION,
                f"{one.listener} would be advertised as '{one.host}:{one.port}', which no client "
                "can connect to; set an advertised address.",
            )
    old = image.brokers.get(command.broker_id)
    if old and old.incarnation_id != command.incarnation_id and command.session_valid:
        raise Refused(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker is registered with that broker id: {command.broker_id}. If it is this "
            "node's earlier process, wait for its session to end; else change node.id.",
        )


def broker_heartbeat(
    image: ClusterImage, command: BrokerHeartbeat, settings: ControllerSettings
) -> Decision[Heartbeat]:
    """Unfences who has caught up, fences who asks for it, and lets go who has handed over."""
    try:
        broker = known_broker(image, command.broker_id, command.epoch)
    except Refused as refused:
        return Decision((), Heartbeat(refused.error))
    if command.want_shutdown:
        return _shut_down(image, broker, command, settings)
    if broker.fenced and command.caught_up and not command.want_fence:
        records = (BrokerUnfenced(broker.id, broker.epoch), *_with(image, broker.id, settings))
        return Decision(records, Heartbeat(OK, caught_up=True, fenced=False))
    if not broker.fenced and command.want_fence:
        records = _fence(image, broker, settings)
        return Decision(records, Heartbeat(OK, command.caught_up, fenced=True))
    return Decision((), Heartbeat(OK, command.caught_up, broker.fenced))


def _shut_down(
    image: ClusterImage, broker: Broker, command: BrokerHeartbeat, settings: ControllerSettings
) -> Decision[Heartbeat]:
    if broker.fenced:
        return Decision((), Heartbeat(OK, command.caught_up, fenced=True, should_shut_down=True))
    if not broker.in_controlled_shutdown:
        moved = _without(image, broker.id, settings)
        records = (BrokerShuttingDown(broker.id, broker.epoch), *moved)
        return Decision(records, Heartbeat(OK, command.caught_up, fenced=False))
    # Once it leads nothing, others serve its partitions and it may stop.
    leads = any(state.leader == broker.id for _, _, state in image.partitions())
    if leads:
        return Decision((), Heartbeat(OK, command.caught_up, fenced=False))
    done = Heartbeat(OK, command.caught_up, fenced=True, should_shut_down=True)
    return Decision(_fence(image, broker, settings), done)


def fence_broker(
    image: ClusterImage, command: FenceBroker, settings: ControllerSettings
) -> Decision[Error]:
    """A session ended. Fencing a fenced broker changes nothing."""
    broker = image.brokers.get(command.broker_id)
    if broker is None:
        return Decision((), _not_registered(command.broker_id))
    if broker.fenced or command.epoch not in {None, broker.epoch}:
        return Decision((), OK)
    return Decision(_fence(image, broker, settings), OK)


def unregister_broker(
    image: ClusterImage, command: UnregisterBroker, settings: ControllerSettings
) -> Decision[Error]:
    """The broker is gone; a partition whose last in-sync replica it is stays without a leader."""
    broker = image.brokers.get(command.broker_id)
    if broker is None:
        return Decision((), _not_registered(command.broker_id))
    moved = _without(image, broker.id, settings)
    return Decision((*moved, BrokerUnregistered(broker.id, broker.epoch)), OK)


def allocate_producer_ids(
    image: ClusterImage, command: AllocateProducerIds, _: ControllerSettings
) -> Decision[ProducerIds]:
    """The next block of ids; the record moves the counter before anyone uses them (FM 74)."""
    try:
        known_broker(image, command.broker_id, command.broker_epoch)
    except Refused as refused:
        return Decision((), ProducerIds(refused.error))
    start = image.next_producer_id
    if start > LONG_MAX - PRODUCER_ID_BLOCK:
        error = Error(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been given out.")
        return Decision((), ProducerIds(error))
    after = start + PRODUCER_ID_BLOCK
    record = ProducerIdsAllocated(command.broker_id, command.broker_epoch, after)
    return Decision((record,), ProducerIds(OK, start, PRODUCER_ID_BLOCK))


def known_broker(image: ClusterImage, broker_id: int, epoch: int) -> Broker:
    """The broker whose current registration this is."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        error = _not_registered(broker_id)
        raise Refused(error.code, error.message or "")
    if broker.epoch != epoch:
        raise Refused(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}: broker "
            f"{broker_id} was registered again since.",
        )
    return broker


def _not_registered(broker_id: int) -> Error:
    return Error(
        ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered."
    )


def _fence(image: ClusterImage, broker: Broker, settings: ControllerSettings) -> tuple[Record, ...]:
    return (BrokerFenced(broker.id, broker.epoch), *_without(image, broker.id, settings))


def _without(
    image: ClusterImage, broker_id: int, settings: ControllerSettings
) -> tuple[Record, ...]:
    """What its partitions become when a broker is no longer to be counted on."""
    return _settled(
        image,
        settings,
        lambda one: one != broker_id and image.is_live(one),
        lambda state: broker_id in state.isr or state.leader == broker_id,
    )


def _restarted(
    image: ClusterImage, broker_id: int, settings: ControllerSettings
) -> Iterator[Record]:
    """What a process that died and is back has left: others lead, and are the ISR if they suffice.

    Where they are fewer than min.insync.replicas it stays in the ISR. Its log has what an ISR of
    that size has confirmed, and the others may be dead too without anybody knowing it yet: when all
    of a cluster died and not all of it comes back, those who do come back lead (KIP-966's reason).
    """
    layers = image.layers(-1, settings.static_configs)
    unclean, base = UncleanRule(image, layers), base_config(layers)
    for topic, index, state in image.partitions():
        if broker_id not in state.isr:
            continue
        needed = resolve(image.topic_overrides(topic.name), base).min_insync_replicas
        new = settle(
            state,
            lambda one: one != broker_id and image.is_live(one),
            unclean=unclean(topic.name),
        )
        if len(new.isr) < needed:
            isr = tuple(one for one in state.isr if one == broker_id or one in new.isr)
            new = advance(state, replace(state, isr=isr, leader=new.leader))
        if new is not state:
            yield PartitionChanged(topic.id, index, new)


def _lost(image: ClusterImage, broker_id: int, settings: ControllerSettings) -> Iterator[Record]:
    """A broker has lost its disk: it is in no ISR, and leads nothing with the log it lacks."""
    unclean = UncleanRule(image, image.layers(-1, settings.static_configs))
    for topic, index, state in image.partitions():
        if broker_id in state.isr:
            new = without_disk(
                state,
                broker_id,
                lambda one: one != broker_id and image.is_live(one),
                unclean=unclean(topic.name),
            )
            yield PartitionChanged(topic.id, index, new)


def _with(image: ClusterImage, broker_id: int, settings: ControllerSettings) -> tuple[Record, ...]:
    """Partitions without a leader that can have one now that a broker is back."""
    return _settled(
        image,
        settings,
        lambda one: one == broker_id or image.is_live(one),
        lambda state: state.leader == NO_LEADER and broker_id in state.replicas,
    )


def _settled(
    image: ClusterImage,
    settings: ControllerSettings,
    is_live: Callable[[int], bool],
    touched: Callable[[PartitionState], bool],
) -> tuple[Record, ...]:
    unclean = UncleanRule(image, image.layers(-1, settings.static_configs))
    return tuple(settle_all(image, is_live, unclean, touched))
