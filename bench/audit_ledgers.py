"""Synthetic ledgers of any size: a clean run of producers and consumers, and one planted change.

    python bench/audit_ledgers.py DIR --events 10000000 [--change drop --seed 7]

Half of the events are acked sends, half are reads. Producers send runs of messages to one partition
after the other and overlap in time; each consumer has its partitions and reads them to the end.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from chronik.audit.ledger import BATCH_ROWS_MAX, INTENT_RANGE, LedgerWriter
from chronik.audit.rows import Kind, Outcome, Row

Array = Any
RUN = 512
"""Messages that go to one partition in one request."""
RUN_NS = 512_000
LATENCY_NS = 9_000_000
POLL_ROWS = 500
TOPIC = "t"
CHANGES = ("none", "drop", "duplicate", "swap", "exchange", "corrupt", "hide", "invent", "reorder")
EXPECTED = {
    "none": {},
    "drop": {"lost-write": 1},
    "duplicate": {"duplicate": 1},
    "swap": {"int-nonmonotonic-poll": 1},
    "exchange": {"inconsistent-offsets": 2},
    "corrupt": {"corrupt": 1},
    "hide": {"unseen": 1},
    "invent": {"phantom": 1},
    "reorder": {"realtime-order": 1},
}
"""Each change of one event, and the only anomaly that it is."""


class Shape(NamedTuple):
    """How large, and who does it."""

    runs: int
    producers: int = 2
    consumers: int = 2
    partitions: int = 6
    change: str = "none"
    seed: int = 0

    @property
    def runs_per_partition(self) -> int:
        return self.runs // self.partitions


def shape_of(events: int, **settings: Any) -> Shape:
    """Rounded to whole rounds: every producer sends one run to every partition."""
    plain = Shape(0, **settings)
    round_runs = plain.producers * plain.partitions
    rounds = max(2, round(events / 2 / RUN / round_runs))
    return plain._replace(runs=rounds * round_runs)


def write_ledgers(directory: Path, shape: Shape) -> int:
    """Writes the ledgers; returns how many events they hold."""
    directory.mkdir(parents=True, exist_ok=True)
    written = sum(_write_producer(directory, shape, number) for number in range(shape.producers))
    for number in range(shape.consumers):
        written += _write_consumer(directory, shape, number)
    return written


def checksums(sender: Array, sequences: Array) -> Array:
    """Any fixed mixture of who and which: below the number that means none."""
    mixed = (sequences * 2_654_435_761 + sender * 40_503) & 0xFFFF_FFFF
    return (mixed ^ (mixed >> 15)) % 0xFFFF_FFFE


def _writer(directory: Path, name: str) -> LedgerWriter:
    return LedgerWriter(directory / f"{name}.ledger", "bench", name, now_ns=lambda: 0)


def _write_producer(directory: Path, shape: Shape, producer: int) -> int:
    """Run r of the topic is of producer r % producers; its partition goes round."""
    rows = 0
    with _writer(directory, f"p{producer}") as ledger:
        ledger.note(Kind.CLIENT, "idempotent=true clock=bench")
        ledger.note(Kind.TOPIC, f"partitions={shape.partitions}", TOPIC)
        own = np.arange(producer, shape.runs, shape.producers)
        per_batch = BATCH_ROWS_MAX // RUN
        for first in range(0, len(own), per_batch):
            runs = own[first : first + per_batch]
            ledger.append(
                Row(Kind.INTENT, topic=TOPIC, sequence=first * RUN, records=len(runs) * RUN)
            )
            ledger.flush()
            columns = _sends(shape, producer, runs, first * RUN)
            rows += len(columns["sequence"])
            ledger.write(len(columns["sequence"]), columns)
        end = Row(Kind.INTENT, topic=TOPIC, sequence=len(own) * RUN, records=0)
        ledger.append(end)
    assert BATCH_ROWS_MAX <= INTENT_RANGE
    return rows


def _places(shape: Shape, runs: Array) -> tuple[Array, Array]:
    """Partition and base offset of runs: every round of the producers goes to each in turn."""
    rounds, within = np.divmod(runs, shape.producers)
    partitions = rounds % shape.partitions
    number = rounds // shape.partitions * shape.producers + within
    return partitions, number * RUN


def _sends(shape: Shape, producer: int, runs: Array, first: int) -> dict[str, Any]:
    partitions, bases = _places(shape, runs)
    inside = np.arange(RUN)
    sequences = np.arange(first, first + len(runs) * RUN)
    begins = runs * RUN_NS
    if shape.change == "reorder" and producer == 0 and shape.runs // 2 // 2 * 2 in runs:
        begins = begins + (runs == shape.runs // 2 // 2 * 2) * (LATENCY_NS + 2 * RUN_NS)
    columns = {
        "sequence": sequences,
        "partition": np.repeat(partitions, RUN),
        "offset": (bases[:, None] + inside).ravel(),
        "begin_ns": np.repeat(begins, RUN),
        "end_ns": np.repeat(begins + LATENCY_NS, RUN),
        "checksum": checksums(np.int64(producer), sequences),
    }
    shared: dict[str, Any] = {"kind": Kind.SEND, "topic": TOPIC, "outcome": Outcome.OK}
    return shared | {name: pa.array(values, pa.int64()) for name, values in columns.items()}


def _write_consumer(directory: Path, shape: Shape, consumer: int) -> int:
    rows = 0
    own = range(consumer, shape.partitions, shape.consumers)
    length = shape.runs_per_partition * RUN
    with _writer(directory, f"c{consumer}") as ledger:
        ledger.note(Kind.CLIENT, "isolation=read_committed clock=bench")
        for partition in own:
            ledger.append(Row(Kind.ASSIGN, topic=TOPIC, partition=partition, position=0))
        ledger.flush()
        for partition, low in _turns(own, length):
            records = _records(shape, partition, low, min(length, low + BATCH_ROWS_MAX))
            if partition == 0:
                _change(shape, records, length, low)
            rows += _write_records(ledger, records)
        for partition in own:
            longer = partition == 0 and shape.change in ("duplicate", "invent")
            row = Row(Kind.LOG, topic=TOPIC, partition=partition, position=0)
            ledger.append(row._replace(offset=length + longer))
    return rows


def _turns(partitions: range, length: int) -> Iterator[tuple[int, int]]:
    for low in range(0, length, BATCH_ROWS_MAX):
        for partition in partitions:
            yield partition, low


def _records(shape: Shape, partition: int, low: int, high: int) -> dict[str, Array]:
    """What stands at the offsets: the inverse of `_places`."""
    offsets = np.arange(low, high)
    number, inside = np.divmod(offsets, RUN)
    turn, producers = np.divmod(number, shape.producers)
    rounds = turn * shape.partitions + partition
    sequences = rounds * RUN + inside
    runs = rounds * shape.producers + producers
    return {
        "offset": offsets,
        "partition": np.full(len(offsets), partition),
        "sender": producers,
        "sequence": sequences,
        "checksum": checksums(producers, sequences),
        "end_ns": runs * RUN_NS + LATENCY_NS + RUN_NS,
        "poll": offsets // POLL_ROWS,
    }


def _write_records(ledger: LedgerWriter, records: dict[str, Array]) -> int:
    names = np.array([*(f"p{n}" for n in range(64)), "nobody"])
    columns: dict[str, Any] = {"kind": Kind.RECORD, "topic": TOPIC, "outcome": Outcome.OK}
    for name, values in records.items():
        column = names[values] if name == "sender" else values
        columns[name] = pa.array(column, pa.string() if name == "sender" else pa.int64())
    count = len(records["offset"])
    ledger.write(count, columns)
    return count


def _change(shape: Shape, records: dict[str, Array], length: int, low: int) -> None:
    """One event of partition 0 becomes wrong, in the batch that holds it."""
    at = int(np.random.default_rng(shape.seed).integers(1, length - 2))
    high = low + len(records["offset"])
    if low <= at < high - 1:
        _change_at(shape.change, records, at - low)
    if high == length and shape.change in ("duplicate", "invent", "hide"):
        _change_end(shape.change, records)


def _change_at(change: str, records: dict[str, Array], at: int) -> None:
    if change == "drop":
        for name, values in records.items():
            records[name] = np.delete(values, at)
    elif change == "corrupt":
        records["checksum"][at] ^= 1
    elif change == "swap":
        at -= at % POLL_ROWS == POLL_ROWS - 1
        for values in records.values():
            values[[at, at + 1]] = values[[at + 1, at]]
    elif change == "exchange":
        for name in ("sender", "sequence", "checksum"):
            records[name][[at, at + 1]] = records[name][[at + 1, at]]


def _change_end(change: str, records: dict[str, Array]) -> None:
    """At the end of the log: the first value again, one that nobody sent, or nothing."""
    for name, values in records.items():
        if change == "hide":
            records[name] = values[:-1]
            continue
        added = values[-1:].copy()
        if name == "offset":
            added += 1
        elif name == "sender" and change == "invent":
            added[:] = 64
        elif name in ("sequence", "checksum") and change == "duplicate":
            zero = np.int64(0)
            added[:] = 0 if name == "sequence" else checksums(zero, zero)
        elif name == "sender":
            added[:] = 0
        records[name] = np.concatenate([values, added])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--change", choices=CHANGES, default="none")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    shape = shape_of(arguments.events, change=arguments.change, seed=arguments.seed)
    print(write_ledgers(arguments.directory, shape), "events")  # noqa: T201


if __name__ == "__main__":
    main()
