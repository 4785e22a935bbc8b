"""Rules over trace events of the way in: offsets, sequences, and what a restart must not lose."""

from collections import defaultdict
from collections.abc import Iterator

from chronik.audit.diagnosis import CERTAIN, LIKELY, Cause
from chronik.audit.traces import Numbered, Place, Traces, number, place_of
from chronik.trace.events import EventKind, TraceEvent

Pair = tuple[Numbered, Numbered]
LATER_APPENDS_MIN = 5
"""So many appends in order, and a race on every append would have shown again."""


def offset_assigned_twice(traces: Traces) -> Iterator[Cause]:
    """Overlapping ranges in one leader epoch; cuts of the log (KIP-101) make their reuse right."""
    for place, batches in _by_epoch(traces):
        pairs = _twice(traces, place, batches)
        created = _at_creation_only(batches, pairs)
        name = "partition-state-twice" if created else "offset-assigned-twice"
        where = f"{place[0]}-{place[1]}"
        for one, other in pairs:
            said = f"{where}: two batches hold offset {other[1].base_offset}"
            if created:
                said += ", both the partition's first: its state was created twice"
            shown = traces.evidence((one, other))
            yield Cause(name, LIKELY if created else CERTAIN, said, shown)


def _by_epoch(traces: Traces) -> Iterator[tuple[Place, list[Numbered]]]:
    for place, appended in traces.by_place(EventKind.APPENDED).items():
        epochs: dict[int, list[Numbered]] = defaultdict(list)
        for item in appended:
            epochs[number(item[1].leader_epoch)].append(item)
        for batches in epochs.values():
            yield place, batches


def _twice(traces: Traces, place: Place, batches: list[Numbered]) -> list[Pair]:
    cuts = traces.by_place(EventKind.TRUNCATED).get(place, [])
    return [
        pair
        for pair in _overlaps(batches)
        if not _cut_between(cuts, *pair) and not _restarted_between(traces, *pair)
    ]


def _overlaps(batches: list[Numbered]) -> Iterator[Pair]:
    """Each batch that begins before the furthest end so far, with the batch that holds that end."""
    ordered = sorted(batches, key=lambda item: (number(item[1].base_offset), item[0]))
    furthest: Numbered | None = None
    for item in ordered:
        if furthest and number(item[1].base_offset) <= number(furthest[1].last_offset):
            yield min(furthest, item), max(furthest, item)
        if furthest is None or number(item[1].last_offset) > number(furthest[1].last_offset):
            furthest = item


def _cut_between(cuts: list[Numbered], one: Numbered, other: Numbered) -> bool:
    return any(
        one[0] < line < other[0] and number(cut.log_end) <= number(other[1].base_offset)
        for line, cut in cuts
    )


def _restarted_between(traces: Traces, one: Numbered, other: Numbered) -> bool:
    """What a crash took from the disk is given again: that is `fsync_lost`, or durability os."""
    same_node = one[1].node == other[1].node
    return same_node and traces.run_of(*one) != traces.run_of(*other)


def _at_creation_only(batches: list[Numbered], pairs: list[Pair]) -> bool:
    """All overlaps are with the first batch, and the many later ones are in order."""
    first = min(batches)
    later = len(batches) - len(pairs) - 1
    return later >= LATER_APPENDS_MIN and bool(pairs) and all(one == first for one, _ in pairs)


def append_repeated(traces: Traces) -> Iterator[Cause]:
    """One batch of an idempotent producer (KIP-98) was appended twice."""
    for where, batches in _by_producer(traces):
        seen: dict[int, Numbered] = {}
        for item in batches:
            before = seen.setdefault(number(item[1].base_sequence), item)
            if before[1].base_offset != item[1].base_offset:
                offsets = f"at offset {before[1].base_offset} and at {item[1].base_offset}"
                said = f"{where}: sequence {item[1].base_sequence} is {offsets}: a retry"
                yield Cause("duplicate-append", CERTAIN, said, traces.evidence((before, item)))


def append_out_of_sequence(traces: Traces) -> Iterator[Cause]:
    """A batch is behind one that its producer sent after it, on the same way."""
    yield from _sequences_out_of_order(traces)
    yield from _requests_out_of_order(traces)


def _sequences_out_of_order(traces: Traces) -> Iterator[Cause]:
    for where, batches in _by_producer(traces):
        seen: set[int] = set()
        last: Numbered | None = None
        for item in sorted(batches, key=lambda one: number(one[1].base_offset)):
            sequence = number(item[1].base_sequence)
            if last and sequence not in seen and sequence < number(last[1].base_sequence):
                said = f"{where}: sequence {sequence} is behind {last[1].base_sequence}"
                shown = traces.evidence((last, item))
                yield Cause("appended-out-of-sequence", CERTAIN, said, shown)
            seen.add(sequence)
            last = item


def _requests_out_of_order(traces: Traces) -> Iterator[Cause]:
    """Requests of one connection are taken in order; only a duplicate may name older offsets."""
    for place, appended in traces.by_place(EventKind.APPENDED).items():
        plain = {
            (traces.run_of(*item), item[1].base_offset)
            for item in appended
            if number(item[1].producer_id) < 0
        }
        acked = traces.by_place(EventKind.ACKED).get(place, [])
        known = [item for item in acked if (traces.run_of(*item), item[1].base_offset) in plain]
        for before, item in _behind(traces, known):
            one, other = item[1].correlation_id, before[1].correlation_id
            said = f"{place[0]}-{place[1]}: request {one} of {item[1].client_id} was appended"
            said += f" before its request {other}"
            shown = traces.evidence((before, item))
            yield Cause("appended-out-of-sequence", CERTAIN, said, shown)


def _behind(traces: Traces, acked: list[Numbered]) -> Iterator[Pair]:
    """Each later request of a connection with an offset below that of an earlier one."""
    furthest: dict[tuple[object, ...], Numbered] = {}
    for item in sorted(acked, key=lambda one: number(one[1].correlation_id)):
        if item[1].connection_id is None:
            continue
        connection = (traces.run_of(*item), item[1].connection_id, item[1].client_id)
        before = furthest.setdefault(connection, item)
        if number(item[1].base_offset) < number(before[1].base_offset):
            yield before, item
        else:
            furthest[connection] = item


def _by_producer(traces: Traces) -> Iterator[tuple[str, list[Numbered]]]:
    """Batches that one run of a node appended for one producer in one epoch of both.

    What the disk refused was taken back; its retry is right.
    """
    cuts = traces.by_place(EventKind.TRUNCATED)
    groups: dict[tuple[object, ...], list[Numbered]] = defaultdict(list)
    for line, event in traces.by_kind[EventKind.APPENDED]:
        if _taken_back(cuts.get(place_of(event), []), line, event):
            continue
        if number(event.producer_id) >= 0 and number(event.base_sequence) >= 0:
            producer = (event.producer_id, event.producer_epoch)
            run = traces.run_of(line, event)
            groups[place_of(event), producer, event.leader_epoch, run].append((line, event))
    for items in groups.values():
        event = items[0][1]
        yield f"{event.topic}-{event.partition}, producer {event.producer_id}", items


def _taken_back(cuts: list[Numbered], line: int, event: TraceEvent) -> bool:
    return any(
        line < at and cut.node == event.node and number(cut.log_end) <= number(event.base_offset)
        for at, cut in cuts
    )


def fsync_lost(traces: Traces) -> Iterator[Cause]:
    """Committed and, as the node said, on its disk; after its restart the offsets are free again.

    Committed data is never cut, so an append below the old watermark shows that the disk lost it.
    """
    for place, appended in traces.by_place(EventKind.APPENDED).items():
        firsts: dict[tuple[int, int], Numbered] = {}
        for item in appended:
            firsts.setdefault(traces.run_of(*item), item)
        for first in firsts.values():
            before = _durable_before(traces, place, first)
            if before is not None:
                end, base = number(before[1].log_end), first[1].base_offset
                said = f"{place[0]}-{place[1]} at node {first[1].node}: synced up to {end}"
                said += f", and after a restart offset {base} was given again"
                yield Cause("fsync-lost", CERTAIN, said, traces.evidence((before, first)))


def _durable_before(traces: Traces, place: Place, first: Numbered) -> Numbered | None:
    """What an earlier run of the node synced and committed beyond the first append of this one."""
    base = number(first[1].base_offset)
    run = traces.run_of(*first)

    def earlier(item: Numbered) -> bool:
        node, start = traces.run_of(*item)
        return node == run[0] and start < run[1]

    moved = traces.by_place(EventKind.WATERMARK).get(place, [])
    levels = [number(item[1].high_watermark) for item in moved if earlier(item)]
    if max(levels, default=0) <= base:
        return None
    synced = traces.by_place(EventKind.FSYNCED).get(place, [])
    found = [item for item in synced if earlier(item) and _is_synced_beyond(item[1], base)]
    return found[-1] if found else None


def _is_synced_beyond(event: TraceEvent, offset: int) -> bool:
    return event.detail != "os" and number(event.log_end) > offset


RULES = (offset_assigned_twice, fsync_lost, append_repeated, append_out_of_sequence)
