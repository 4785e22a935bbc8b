"""Clean ledgers of any size, and the mutations that an auditor must find in them."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from chronik.audit.rows import Kind, Outcome, Row

POLL_RECORDS = 50
Mutation = Callable[[list[Row], random.Random], None]


@dataclass(slots=True)
class _Writer:
    """A log of some partitions as producers and consumers see it; offsets have gaps."""

    rows: list[Row] = field(default_factory=list)
    now_ns: int = 1_000

    def tick(self) -> int:
        self.now_ns += 1_000
        return self.now_ns


def clean(count: int, *, seed: int = 0, partitions: int = 3, producers: int = 2) -> list[Row]:
    """Everything acked is read once, in order; some sends failed or are of unknown end."""
    rng = random.Random(seed)
    writer = _Writer()
    logs: list[list[Row]] = [[] for _ in range(partitions)]
    offsets = [rng.randrange(5) for _ in range(partitions)]
    sequences = [0] * producers
    for process in range(producers):
        writer.rows.append(Row(Kind.CLIENT, f"p{process}", detail="idempotent=true"))
    for _ in range(count):
        process, partition = rng.randrange(producers), rng.randrange(partitions)
        send = _send(writer, rng, process, sequences[process], partition, offsets[partition])
        sequences[process] += 1
        writer.rows.append(send)
        if send.outcome == Outcome.FAIL:
            continue
        if send.outcome == Outcome.OK or rng.random() < 0.5:
            logs[partition].append(send._replace(offset=offsets[partition]))
            # A gap: a control record, an aborted batch or a compacted record was there.
            offsets[partition] += 1 if rng.random() < 0.95 else rng.randrange(2, 5)
    for partition, log in enumerate(logs):
        _read(writer, partition, log)
        end = Row(Kind.LOG, "final", topic="t", partition=partition, position=0)
        writer.rows.append(end._replace(offset=offsets[partition]))
    return writer.rows


def _send(
    writer: _Writer, rng: random.Random, process: int, sequence: int, partition: int, offset: int
) -> Row:
    outcome = Outcome.OK
    if rng.random() < 0.02:
        outcome = rng.choice((Outcome.FAIL, Outcome.INFO))
    return Row(
        Kind.SEND,
        f"p{process}",
        begin_ns=writer.tick(),
        end_ns=writer.tick(),
        topic="t",
        partition=partition,
        offset=offset if outcome == Outcome.OK else -1,
        sequence=sequence,
        checksum=rng.getrandbits(31),
        outcome=outcome,
    )


def _read(writer: _Writer, partition: int, log: list[Row]) -> None:
    writer.rows.append(Row(Kind.ASSIGN, "c0", topic="t", partition=partition, position=0))
    for at, sent in enumerate(log):
        writer.rows.append(
            Row(
                Kind.RECORD,
                "c0",
                end_ns=writer.tick(),
                topic="t",
                partition=partition,
                offset=sent.offset,
                sender=sent.process,
                sequence=sent.sequence,
                checksum=sent.checksum,
                outcome=Outcome.OK,
                poll=at // POLL_RECORDS,
            )
        )


def _acked_reads(rows: list[Row]) -> list[int]:
    """Places of records that were acked and are neither the first nor the last of their log."""
    acked = {
        (row.process, row.sequence) for row in rows if row.kind == Kind.SEND and row.offset >= 0
    }
    places = []
    for at in range(1, len(rows) - 1):
        row, before, after = rows[at], rows[at - 1], rows[at + 1]
        inner = before.kind == row.kind == after.kind == Kind.RECORD
        if inner and (row.sender, row.sequence) in acked:
            places.append(at)
    return places


def drop(rows: list[Row], rng: random.Random) -> None:
    del rows[rng.choice(_acked_reads(rows))]


def duplicate(rows: list[Row], rng: random.Random) -> None:
    """The value is in the log again, behind everything else."""
    at = rng.choice(_acked_reads(rows))
    place = next(n for n in range(at, len(rows)) if rows[n].kind == Kind.LOG)
    end = rows[place]
    rows[place] = end._replace(offset=end.offset + 1)
    rows.insert(place, rows[at]._replace(offset=end.offset, poll=rows[place - 1].poll))


def swap(rows: list[Row], rng: random.Random) -> None:
    """Two neighbours of one poll came in the wrong order."""
    places = [at for at in _acked_reads(rows) if rows[at].poll == rows[at + 1].poll]
    at = rng.choice(places)
    rows[at], rows[at + 1] = rows[at + 1], rows[at]


def exchange(rows: list[Row], rng: random.Random) -> None:
    """Two neighbours are in the log, but not at the offsets that their acks said."""
    acked = set(_acked_reads(rows))
    at = rng.choice([at for at in acked if at + 1 in acked])
    one, other = rows[at], rows[at + 1]
    rows[at], rows[at + 1] = other._replace(offset=one.offset), one._replace(offset=other.offset)


def corrupt(rows: list[Row], rng: random.Random) -> None:
    at = rng.choice(_acked_reads(rows))
    rows[at] = rows[at]._replace(checksum=rows[at].checksum ^ 1)


def truncate(rows: list[Row], rng: random.Random) -> None:
    """The log ends one acked record earlier than it did."""
    ends = [at for at, row in enumerate(rows) if row.kind == Kind.LOG]
    place = rng.choice(ends)
    acked = {
        (row.process, row.sequence) for row in rows if row.kind == Kind.SEND and row.offset >= 0
    }
    last = rows[place - 1]
    while (last.sender, last.sequence) not in acked:
        del rows[place - 1]
        place -= 1
        last = rows[place - 1]
    del rows[place - 1]
    rows[place - 1] = rows[place - 1]._replace(offset=last.offset)


def hide(rows: list[Row], rng: random.Random) -> None:
    """The last acked record is not served, though the end offset says that it is there."""
    ends = {(row.partition): row.offset for row in rows if row.kind == Kind.LOG}
    truncate(rows, rng)
    for at, row in enumerate(rows):
        if row.kind == Kind.LOG:
            rows[at] = row._replace(offset=ends[row.partition])


def invent(rows: list[Row], rng: random.Random) -> None:
    """A record that nobody sent stands in a gap behind the log."""
    at = rng.choice(_acked_reads(rows))
    place = next(n for n in range(at, len(rows)) if rows[n].kind == Kind.LOG)
    end = rows[place]
    rows[place] = end._replace(offset=end.offset + 1)
    made_up = rows[place - 1]._replace(offset=end.offset, sender="nobody")
    rows.insert(place, made_up)


def reread(rows: list[Row], rng: random.Random) -> None:
    """A later poll gives a record again, though nobody asked for it."""
    at = rng.choice(_acked_reads(rows))
    place = next(n for n in range(at, len(rows)) if rows[n].kind == Kind.LOG)
    rows.insert(place, rows[at]._replace(poll=rows[place - 1].poll + 1))


def resurrect(rows: list[Row], rng: random.Random) -> None:
    """A send that failed for sure is in the log, behind everything else."""
    sends = [at for at, row in enumerate(rows) if row.kind == Kind.SEND]
    unread = [at for at in sends if rows[at].outcome == Outcome.FAIL]
    failed = rows[rng.choice(unread)]
    place = rng.choice([at for at, row in enumerate(rows) if row.kind == Kind.LOG])
    end = rows[place]
    rows[place] = end._replace(offset=end.offset + 1)
    found = rows[place - 1]._replace(offset=end.offset, sender=failed.process)
    rows.insert(place, found._replace(sequence=failed.sequence, checksum=failed.checksum))


def reorder(rows: list[Row], rng: random.Random) -> None:
    """Two sends of one producer are stored and acknowledged in the wrong order."""
    acked = set(_acked_reads(rows))
    pairs = [
        at for at in sorted(acked) if at + 1 in acked and rows[at].sender == rows[at + 1].sender
    ]
    at = rng.choice(pairs)
    one, other = rows[at], rows[at + 1]
    rows[at], rows[at + 1] = other._replace(offset=one.offset), one._replace(offset=other.offset)
    moved = {(r.sender, r.sequence): r.offset for r in (rows[at], rows[at + 1])}
    for n, row in enumerate(rows):
        if row.kind == Kind.SEND and (row.process, row.sequence) in moved:
            rows[n] = row._replace(offset=moved[row.process, row.sequence])


MUTATIONS: dict[str, tuple[Mutation, set[str]]] = {
    "drop": (drop, {"lost-write"}),
    "duplicate": (duplicate, {"duplicate"}),
    "swap": (swap, {"int-nonmonotonic-poll"}),
    "exchange": (exchange, {"inconsistent-offsets"}),
    "corrupt": (corrupt, {"corrupt"}),
    "truncate": (truncate, {"truncation"}),
    "hide": (hide, {"unseen"}),
    "invent": (invent, {"phantom"}),
    "reread": (reread, {"nonmonotonic-poll"}),
    "resurrect": (resurrect, {"aborted-read"}),
    "reorder": (reorder, {"nonmonotonic-send"}),
}
"""Each change of one row, and the only name under which it must be reported."""
