"""Where and when acknowledged values were lost: partition, offsets, time, and who led meanwhile.

What a ledger alone can say of any cluster; replicas' files and traces say more (`where.py`).
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple

from chronik.audit.history import History
from chronik.audit.loss import locate, loss_of
from chronik.audit.rows import Kind, Outcome, Partition, Row, words

NEAR_NS = 10_000_000_000
"""A fault or an election so long before or after the acks may have to do with the loss."""


class Lost(NamedTuple):
    """One acknowledged value that is gone."""

    send: Row
    where: str


class Loss(NamedTuple):
    """What a partition lost, added up."""

    partition: Partition
    values: int
    offsets: list[list[int]]
    acked_ns: tuple[int, int]
    """The first and the last acknowledgement; -1 where none is known."""
    epochs: list[int]
    """The leader epochs of what was read before the first lost offset, and from it on."""
    where: dict[str, int]


def find_lost(history: History) -> dict[Partition, list[Lost]]:
    """By partition, in the order of their offsets."""
    found: dict[Partition, list[Lost]] = defaultdict(list)
    for value, send in history.sends.items():
        if value in history.reads or not history.is_committed(send):
            continue
        partition = history.partition_of_value(value, send)
        if loss_of(history, send, partition):
            found[partition].append(Lost(send, locate(history, value, send, partition)))
    return {key: sorted(lost, key=lambda one: one.send.offset) for key, lost in found.items()}


def locate_losses(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """One entry per partition that lost something; empty where nothing was."""
    history = History(rows)
    return losses_in(history, Clock(history))


def losses_in(history: History, clock: "Clock") -> list[dict[str, Any]]:
    lost = find_lost(history)
    summed = [_summed(history, partition, lost[partition]) for partition in sorted(lost)]
    return [loss_entry(history, clock, loss) for loss in summed]


class Clock:
    """Monotonic times as seconds of the run, and as times of a day where a client said it."""

    def __init__(self, history: History) -> None:
        begun = [row.begin_ns for row in history.by_kind[Kind.SEND] if row.begin_ns >= 0]
        noted = [row.begin_ns for row in history.by_kind[Kind.CLIENT] if row.begin_ns >= 0]
        self.start_ns = min(begun or noted, default=0)
        clients = history.by_kind[Kind.CLIENT]
        known = [(row, words(row.detail).get("wall_ns", "")) for row in clients]
        offsets = [int(wall) - row.begin_ns for row, wall in known if wall.isdigit()]
        self._offset_ns = offsets[0] if offsets else None

    def monotonic_ns(self, wall_ns: int, otherwise_ns: int) -> int:
        """A node's wall time on the ledger's clock, or its own monotonic time without one."""
        return otherwise_ns if self._offset_ns is None else wall_ns - self._offset_ns

    def seconds(self, at_ns: int) -> float:
        return round((at_ns - self.start_ns) / 1e9, 3)

    def wall(self, at_ns: int) -> str:
        if self._offset_ns is None:
            return ""
        moment = datetime.fromtimestamp((at_ns + self._offset_ns) / 1e9, UTC)
        return moment.isoformat(timespec="milliseconds")


def _summed(history: History, partition: Partition, lost: list[Lost]) -> Loss:
    offsets = [one.send.offset for one in lost if one.send.offset >= 0]
    acked = sorted(one.send.end_ns for one in lost if one.send.outcome == Outcome.OK)
    acked_ns = (acked[0], acked[-1]) if acked else (-1, -1)
    epochs = epochs_around(history, partition, offsets)
    return Loss(partition, len(lost), ranges(offsets), acked_ns, epochs, _places(lost))


def loss_entry(history: History, clock: Clock, loss: Loss) -> dict[str, Any]:
    """With what happened meanwhile: leaders and faults, of which the history must have the rows."""
    first_ns, last_ns = loss.acked_ns
    entry: dict[str, Any] = {
        "partition": f"{loss.partition.topic}-{loss.partition.partition}",
        "count": loss.values,
        "offsets": loss.offsets,
        "acked_s": [clock.seconds(first_ns), clock.seconds(last_ns)],
        "acked_at": [clock.wall(first_ns), clock.wall(last_ns)],
        "leaders": leaders_near(history, clock, loss.partition, first_ns, last_ns),
        "epochs": loss.epochs,
        "faults": _faults_near(history, clock, first_ns, last_ns),
        "where": loss.where,
    }
    return entry | {"statement": _statement(entry)}


def ranges(offsets: Iterable[int]) -> list[list[int]]:
    """Offsets in a row as pairs of the first and the last."""
    found: list[list[int]] = []
    for offset in offsets:
        if found and offset <= found[-1][1] + 1:
            found[-1][1] = offset
        else:
            found.append([offset, offset])
    return found


def leaders_of(history: History, partition: Partition) -> list[tuple[int, int]]:
    """Moments and leaders, one for each change that the metadata showed."""
    rows = [
        (row.begin_ns, int(words(row.detail)["leader"]))
        for row in history.by_kind[Kind.EPOCH]
        if (row.topic, row.partition) == partition and "leader" in words(row.detail)
    ]
    return [next(group) for _, group in groupby(sorted(rows), key=lambda item: item[1])]


def leaders_near(
    history: History, clock: Clock, partition: Partition, first_ns: int, last_ns: int
) -> list[dict[str, float]]:
    """The leader when the lost values were acknowledged, and those that followed it."""
    changes = leaders_of(history, partition)
    at = max(0, bisect_left(changes, (first_ns, -1)) - 1)
    near = [(moment, leader) for moment, leader in changes[at:] if moment <= last_ns + NEAR_NS]
    return [{"leader": leader, "from_s": clock.seconds(moment)} for moment, leader in near]


def epochs_around(history: History, partition: Partition, offsets: list[int]) -> list[int]:
    """The leader epochs of what was read before the first lost offset, and from it on."""
    if not offsets:
        return []
    read = sorted((at, row.epoch) for at, row in history.logs[partition].read.items())
    place = bisect_left(read, (offsets[0], -1))
    return [epoch for _, epoch in [*read[max(0, place - 1) : place], *read[place : place + 1]]]


def _faults_near(history: History, clock: Clock, first_ns: int, last_ns: int) -> list[str]:
    """What was done to the cluster; what a poll complained of is a consequence."""
    return [
        f"{clock.seconds(row.begin_ns):.1f} s: {row.detail}"
        for row in history.by_kind[Kind.FAULT]
        if row.begin_ns >= 0 and first_ns - NEAR_NS <= row.begin_ns <= last_ns + NEAR_NS
    ]


def _places(lost: list[Lost]) -> dict[str, int]:
    """The sentences about single values, without the names of the values in them."""
    return dict(Counter(one.where.split(", its offset")[0] for one in lost).most_common())


def _statement(entry: dict[str, Any]) -> str:
    spans = [f"{a}" if a == b else f"{a} to {b}" for a, b in entry["offsets"]]
    more = f" and {len(spans) - 3} more ranges" if len(spans) > 3 else ""
    said = f"{entry['partition']}: {entry['count']} acknowledged values are lost"
    said += f", offsets {', '.join(spans[:3])}{more}" if spans else ", of unknown offset"
    first, last = entry["acked_s"]
    said += f", acknowledged {first:.2f} s to {last:.2f} s into the run"
    if entry["acked_at"][0]:
        said += f" ({entry['acked_at'][0][11:23]} to {entry['acked_at'][1][11:23]} UTC)"
    said += _led(entry["leaders"], entry["epochs"])
    said += "".join(f"; {count} {place}" for place, count in entry["where"].items())
    return said + "".join(f"; fault at {fault}" for fault in entry["faults"][:3])


def _led(leaders: list[dict[str, float]], epochs: list[int]) -> str:
    if len(leaders) < 2:
        named = f"; node {leaders[0]['leader']} led all the time" if leaders else ""
    else:
        then = ", ".join(f"{one['leader']} from {one['from_s']:.2f} s" for one in leaders[1:])
        named = f"; node {leaders[0]['leader']} led then, {then}"
    changed = len(epochs) == 2 and epochs[0] != epochs[1]
    return named + (f" (leader epoch {epochs[0]} to {epochs[1]})" if changed else "")
