"""Which blocks of a log must be judged row by row; in all others nothing can be wrong.

A block is clean if every stretch that went through it, and every replica that holds it, has
exactly the acked sends of the block, in order. A clean block can still matter to what happens next
to it, so the neighbours of the others are judged with them (ADR 8 has the argument for each rule).
What is left is a history of its own: the rules find in it what they would find in the whole one.
"""

from collections.abc import Callable, Iterator
from itertools import groupby

import numpy as np

from chronik.audit.anomaly import Policy
from chronik.audit.history import History
from chronik.audit.rows import Kind, Partition, Row
from chronik.audit_spark.blocks import FINGERPRINT, Blocks
from chronik.audit_spark.notes import Notes
from chronik.audit_spark.order import Array
from chronik.audit_spark.realtime import overtaken

Rule = Callable[[Blocks, Notes], Array]


def suspicious(blocks: Blocks, notes: Notes, policy: Policy) -> Array:
    """A mask of the places that are not clean, or next to one that is not."""
    rules: tuple[Rule, ...] = (
        _different, _unread, _passed_over, _doubtful, _disordered, _out_of_sequence, _new_epochs,
        _expiring,
    )  # fmt: skip
    bad = overtaken(blocks, notes.clocks) | _stalled(blocks, notes, policy)
    for rule in rules:
        bad |= rule(blocks, notes)
    return neighbours(blocks, bad)


def _different(blocks: Blocks, _: Notes) -> Array:
    """What a stretch or replica has there is not what was sent."""
    others = np.flatnonzero(~blocks.sends)
    place = blocks.place[others]
    differs = np.zeros(len(others), bool)
    for name in FINGERPRINT:
        differs |= blocks.column(name)[others] != blocks.sent[name][place]
    return blocks.marked(others[differs])


def _unread(blocks: Blocks, _: Notes) -> Array:
    """Nobody read it."""
    return blocks.marked(blocks.sends) & ~blocks.marked(blocks.records)


def _passed_over(blocks: Blocks, notes: Notes) -> Array:
    """A stretch went through it and was given nothing there."""
    mask = np.zeros(blocks.places, bool)
    is_sent = blocks.sent["rows"] > 0
    for key, rows, first, last in _stretches(blocks, notes):
        low, high = blocks.find(key, [first // blocks.size, last // blocks.size + 1])
        through = is_sent[low:high].copy()
        through &= blocks.sent["offset_max"][low:high] >= first
        through &= blocks.sent["offset_min"][low:high] <= last
        through[blocks.place[rows] - low] = False
        mask[low:high] |= through
    return mask


def _stretches(blocks: Blocks, notes: Notes) -> Iterator[tuple[int, Array, int, int]]:
    """Per stretch with records: key, rows, and the first and last offset that it went through."""
    rows = np.flatnonzero(blocks.records)
    names = (blocks.column("stretch"), blocks.key, blocks.process)
    rows = rows[np.lexsort([column[rows] for column in names])]
    changed = np.zeros(max(0, len(rows) - 1), bool)
    for column in names:
        changed |= column[rows][1:] != column[rows][:-1]
    low, high = blocks.column("offset_min"), blocks.column("offset_max")
    for part in np.split(rows, np.flatnonzero(changed) + 1) if len(rows) else ():
        key, stretch = int(blocks.key[part[0]]), int(names[0][part[0]])
        place = (blocks.processes[blocks.process[part[0]]], blocks.keys[key], stretch)
        first = int(low[part].min())
        yield key, part, min(first, notes.asked.get(place, first)), int(high[part].max())


def _doubtful(blocks: Blocks, _: Notes) -> Array:
    """Damage, unknown ends or transactions."""
    return blocks.marked((blocks.column("doubts") > 0) | (blocks.column("disorders") > 0))


def _disordered(blocks: Blocks, _: Notes) -> Array:
    """The rows that should have been followed, by offset."""
    rows = np.flatnonzero(blocks.column("disorders") > 0)
    steps = np.zeros(blocks.places + 1, np.int64)
    bounds = [blocks.column(f"before_offset_{end}")[rows] // blocks.size for end in ("min", "max")]
    np.add.at(steps, blocks.find(blocks.key[rows], bounds[0]), 1)
    np.add.at(steps, blocks.find(blocks.key[rows], bounds[1] + 1), -1)
    return np.cumsum(steps)[:-1] > 0


def _out_of_sequence(blocks: Blocks, _: Notes) -> Array:
    """All sends of a producer whose sequence is in a span that is out of order."""
    disorders, process = blocks.column("disorders") > 0, blocks.process
    mask = np.zeros(blocks.places, bool)
    wrong = np.flatnonzero(blocks.sends & disorders)
    for key, who in set(zip(blocks.key[wrong].tolist(), process[wrong].tolist(), strict=True)):
        own = np.flatnonzero(blocks.sends & (blocks.key == key) & (process == who))
        spans = own[disorders[own]]
        low = blocks.column("disorder_sequence_min")[spans]
        order = np.argsort(low)
        reach = np.maximum.accumulate(blocks.column("disorder_sequence_max")[spans][order])
        before = np.searchsorted(low[order], blocks.column("sequence_max")[own], side="right")
        inside = (before > 0) & (reach[before - 1] >= blocks.column("sequence_min")[own])
        mask |= blocks.marked(own[inside])
    return mask


def _new_epochs(blocks: Blocks, _: Notes) -> Array:
    """The leader epoch changes inside it, or is lower than in the block before."""
    low = blocks.per_place(blocks.records, "epoch_min", np.minimum, 1 << 62)
    high = blocks.per_place(blocks.records, "epoch_max", np.maximum, -1)
    known = np.flatnonzero(high >= 0)
    low, high, key = low[known], high[known], blocks.place_key[known]
    wrong = low != high
    fell = (low[1:] < high[:-1]) & (key[1:] == key[:-1])
    wrong[1:] |= fell
    wrong[:-1] |= fell
    mask = np.zeros(blocks.places, bool)
    mask[known[wrong]] = True
    return mask


def _expiring(blocks: Blocks, notes: Notes) -> Array:
    """The log starts in it, or its topic is compacted."""
    mask = np.zeros(blocks.places, bool)
    highest = blocks.per_place(slice(None), "offset_max", np.maximum, -1)
    for number, key in enumerate(blocks.keys):
        low, high = blocks.find(number, 0), blocks.find(number + 1, 0)
        start = notes.history.logs[key].start
        if start > 0:
            behind = low + np.flatnonzero(highest[low:high] >= start)
            mask[behind[:1]] = True
        if "compact" in notes.history.topics.get(key.topic, {}).get("cleanup.policy", ""):
            mask[low:high] = True
    return mask


def _stalled(blocks: Blocks, notes: Notes, policy: Policy) -> Array:
    """A consumer stayed long at a position inside it, or before it though it was acked first."""
    mask = np.zeros(blocks.places, bool)
    numbers = {key: number for number, key in enumerate(blocks.keys)}
    plain = blocks.sends & (blocks.column("doubts") == 0)
    acked = blocks.per_place(plain, "end_ns_min", np.minimum, 1 << 62)
    for key, position in _long_stays(notes.history, policy):
        if key in numbers and position >= 0:
            block, end = position // blocks.size, blocks.find(numbers[key] + 1, 0)
            inside, behind = blocks.find(numbers[key], [block, block + 1])
            mask[inside:behind] = True
            if behind < end:
                mask[behind + acked[behind:end].argmin()] = True
    return mask


def _long_stays(history: History, policy: Policy) -> Iterator[tuple[Partition, int]]:
    def place(row: Row) -> tuple[str, str, int]:
        return row.process, row.topic, row.partition

    polls = [row for row in history.by_kind[Kind.POLL] if row.partition >= 0]
    for (_, topic, partition), rows in groupby(sorted(polls, key=place), place):
        for position, stay in groupby(rows, lambda row: row.position):
            at_end = [row.end_ns for row in stay if row.offset == position]
            if at_end and at_end[-1] - at_end[0] >= policy.stall_ns:
                yield Partition(topic, partition), position


def neighbours(blocks: Blocks, bad: Array) -> Array:
    """These places, and those next to one: of the key, and of each producer.

    A step over a bad block ends in the next one; a send of unknown end that was read there is
    judged with the nearest sends of its producer.
    """
    near = bad.copy()
    same = blocks.place_key[1:] == blocks.place_key[:-1]
    near[1:] |= bad[:-1] & same
    near[:-1] |= bad[1:] & same
    index = np.flatnonzero(bad)
    for key, own in blocks.by_producer():
        others = index[blocks.place_key[index] == key]
        if len(others):
            before = np.searchsorted(own, others) - 1
            near[own[before[before >= 0]]] = True
            behind = np.searchsorted(own, others, side="right")
            near[own[behind[behind < len(own)]]] = True
    return near
