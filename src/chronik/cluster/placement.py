"""Which brokers get the replicas of new partitions.

Leaders go round the brokers, racks alternating; the other replicas are shifted a little further
each round, so that a lost broker's partitions spread over all others. The start is an argument.
"""

from collections.abc import Sequence

from chronik.cluster.image import Broker


class PlacementError(ValueError):
    """The replicas asked for do not fit on the brokers there are."""


def place(
    brokers: Sequence[Broker],
    partitions: int,
    replication_factor: int,
    start_index: int,
    first_partition: int = 0,
) -> list[tuple[int, ...]]:
    """The replicas of each new partition, preferred leader first; no broker twice in one."""
    if replication_factor > len(brokers):
        raise PlacementError(
            f"Unable to replicate the partition {replication_factor} time(s): The target "
            f"replication factor of {replication_factor} cannot be reached because only "
            f"{len(brokers)} broker(s) are available. Start more brokers or ask for fewer replicas."
        )
    ring = _alternate_racks(brokers)
    racks = len({_rack(one) for one in ring})
    return [
        _replicas(ring, racks, index, start_index, replication_factor)
        for index in range(first_partition, first_partition + partitions)
    ]


def _rack(broker: Broker) -> str:
    return broker.rack or ""


def _alternate_racks(brokers: Sequence[Broker]) -> list[Broker]:
    """One broker of each rack in turn: neighbours are in different racks while there are any."""
    by_rack: dict[str, list[Broker]] = {}
    for broker in sorted(brokers, key=lambda one: (_rack(one), one.id)):
        by_rack.setdefault(_rack(broker), []).append(broker)
    ring: list[Broker] = []
    for turn in range(max((len(group) for group in by_rack.values()), default=0)):
        ring += [group[turn] for group in by_rack.values() if turn < len(group)]
    return ring


def _replicas(
    ring: list[Broker], racks: int, partition: int, start_index: int, replication_factor: int
) -> tuple[int, ...]:
    first = (start_index + partition) % len(ring)
    chosen = [ring[first]]
    if replication_factor == 1:
        return (chosen[0].id,)
    others = len(ring) - 1
    shift = (partition // len(ring) * racks) % others
    order = [ring[(first + 1 + (shift + step) % others) % len(ring)] for step in range(others)]
    while len(chosen) < replication_factor:
        chosen.append(_next(order, chosen))
    return tuple(one.id for one in chosen)


def _next(order: list[Broker], chosen: list[Broker]) -> Broker:
    """The next free broker, in the rack with the fewest replicas of this partition."""
    used = [_rack(one) for one in chosen]
    free = [one for one in order if one not in chosen]
    return min(free, key=lambda one: used.count(_rack(one)))
