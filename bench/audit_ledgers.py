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

from chronik.audit.ledger import BATCH_ROWS_MAX, LedgerWriter
from chronik.audit.rows import Kind, Outcome, Row
from chronik.audit.send_log import INTENT_RANGE

Array = Any
RUN = 512
"""Messages that go to one partition in one request."""
RUN_NS = 512_000
LATENCY_NS = 9_000_000
POLL_ROWS = 500
TOPIC = "t"
RUN_ID = 0xBE_9C_4
EXPECTED: dict[str, dict[str, int]] = {
    "none": {},
    "drop": {"lost-write": 1},
    "duplicate": {"duplicate": 1},
    "swap": {"int-nonmonotonic-poll": 1},
    "exchange": {"inconsistent-offsets": 2},
    "corrupt": {"corrupt": 1},
    "hide": {"unseen": 1},
    "truncate": {"truncation": 1},
    "invent": {"phantom": 1},
    "reread": {"nonmonotonic-poll": 1},
    "resurrect": {"aborted-read": 1},
    "reorder": {"realtime-order": 1},
}
"""Each change of one event, and the only anomaly that it is."""
CHANGES = tuple(EXPECTED)
_LONGER = ("duplicate", "invent", "resurrect")
"""The log has one record more than was acked."""
_AT_PRODUCER = ("resurrect", "reorder")
_AT_END = (*_LONGER, "hide", "truncate", "reread")


class Shape(NamedTuple):
    """How large, and who does it."""

    runs: int
    producers: int = 2
    consumers: int = 2
    partitions: int = 6
    change: str = "none"
    partition: int = 0
    """The one in which something is changed."""
    seed: int = 0
    name: str = ""
    """Goes before the names of the topic and of the processes."""

    @property
    def topic(self) -> str:
        return self.name + TOPIC

    @property
    def sends_per_producer(self) -> int:
        return self.runs // self.producers * RUN

    @property
    def runs_per_partition(self) -> int:
        return self.runs // self.partitions

    @property
    def rounds(self) -> int:
        """Runs of each producer."""
        return self.runs // self.producers

    def chosen(self, count: int) -> int:
        """One of so many, by the seed."""
        return int(np.random.default_rng(self.seed).integers(0, count))


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


def write_changed(directory: Path, clean: Path, shape: Shape) -> list[Path]:
    """Writes what a change touches; all files of the run, the others as they are without it."""
    directory.mkdir(parents=True, exist_ok=True)
    _write_consumer(directory, shape, shape.partition % shape.consumers)
    if shape.change in _AT_PRODUCER:
        _write_producer(directory, shape, 0)
    changed = {path.name: path for path in directory.iterdir()}
    return [changed.get(path.name, path) for path in sorted(clean.iterdir())]


def checksums(sender: Array, sequences: Array) -> Array:
    """Any fixed mixture of who and which: below the number that means none."""
    mixed = (sequences * 2_654_435_761 + sender * 40_503) & 0xFFFF_FFFF
    return (mixed ^ (mixed >> 15)) % 0xFFFF_FFFE


def _writer(directory: Path, name: str) -> LedgerWriter:
    return LedgerWriter(directory / f"{name}.ledger", f"{RUN_ID:016x}", name, now_ns=lambda: 0)


def _write_producer(directory: Path, shape: Shape, producer: int) -> int:
    """Run r of the topic is of producer r % producers; its partition goes round."""
    rows = 0
    with _writer(directory, f"{shape.name}p{producer}") as ledger:
        ledger.note(Kind.CLIENT, "idempotent=true clock=bench")
        ledger.note(Kind.TOPIC, f"partitions={shape.partitions}", shape.topic)
        own = np.arange(producer, shape.runs, shape.producers)
        per_batch = BATCH_ROWS_MAX // RUN
        for first in range(0, len(own), per_batch):
            runs = own[first : first + per_batch]
            ledger.append(
                Row(Kind.INTENT, topic=shape.topic, sequence=first * RUN, records=len(runs) * RUN)
            )
            ledger.flush()
            columns = _sends(shape, producer, runs, first * RUN)
            rows += len(columns["sequence"])
            ledger.write(len(columns["sequence"]), columns)
        if shape.change == "resurrect" and producer == 0:
            ledger.append(_failed(shape))
        end = Row(Kind.INTENT, topic=shape.topic, sequence=len(own) * RUN, records=0)
        ledger.append(end)
    assert BATCH_ROWS_MAX <= INTENT_RANGE
    return rows


def _failed(shape: Shape) -> Row:
    """A send that was refused, after all others."""
    sequence = shape.sends_per_producer
    send = Row(Kind.SEND, begin_ns=shape.runs * RUN_NS, end_ns=(shape.runs + 1) * RUN_NS)
    return send._replace(
        topic=shape.topic,
        partition=shape.partition,
        sequence=sequence,
        checksum=int(checksums(np.int64(0), np.int64(sequence))),
        outcome=Outcome.FAIL,
        detail="refused",
    )


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
    begins = np.repeat(runs * RUN_NS, RUN)
    if shape.change == "reorder" and producer == 0:
        # One send begins after the next run of the other producer was acked.
        late = shape.chosen(shape.rounds - 1) * shape.producers
        begins[::RUN][runs == late] += LATENCY_NS + 2 * RUN_NS
    columns = {
        "sequence": sequences,
        "partition": np.repeat(partitions, RUN),
        "offset": (bases[:, None] + inside).ravel(),
        "begin_ns": begins,
        "end_ns": begins + LATENCY_NS,
        "checksum": checksums(np.int64(producer), sequences),
    }
    shared: dict[str, Any] = {"kind": Kind.SEND, "topic": shape.topic, "outcome": Outcome.OK}
    return shared | {name: pa.array(values, pa.int64()) for name, values in columns.items()}


def _write_consumer(directory: Path, shape: Shape, consumer: int) -> int:
    rows = 0
    own = range(consumer, shape.partitions, shape.consumers)
    length = shape.runs_per_partition * RUN
    with _writer(directory, f"{shape.name}c{consumer}") as ledger:
        ledger.note(Kind.CLIENT, "isolation=read_committed clock=bench")
        for partition in own:
            ledger.append(Row(Kind.ASSIGN, topic=shape.topic, partition=partition, position=0))
        ledger.flush()
        for partition, low in _turns(own, length):
            records = _records(shape, partition, low, min(length, low + BATCH_ROWS_MAX))
            if partition == shape.partition:
                _change(shape, records, length, low)
            rows += _write_records(ledger, shape, records)
        for partition in own:
            end = length + (_end_change(shape.change) if partition == shape.partition else 0)
            row = Row(Kind.LOG, topic=shape.topic, partition=partition, position=0)
            ledger.append(row._replace(offset=end))
    return rows


def _end_change(change: str) -> int:
    return int(change in _LONGER) - int(change == "truncate")


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


def _write_records(ledger: LedgerWriter, shape: Shape, records: dict[str, Array]) -> int:
    names = [f"{shape.name}p{n}" for n in range(shape.producers)] + [f"{shape.name}nobody"]
    columns: dict[str, Any] = {"kind": Kind.RECORD, "topic": shape.topic, "outcome": Outcome.OK}
    for name, values in records.items():
        if name == "sender":
            index = pa.array(values, pa.int32())
            columns[name] = pa.DictionaryArray.from_arrays(index, names).cast(pa.string())
        else:
            columns[name] = pa.array(values, pa.int64())
    count = len(records["offset"])
    ledger.write(count, columns)
    return count


def _change(shape: Shape, records: dict[str, Array], length: int, low: int) -> None:
    """One event of the partition becomes wrong, in the batch that holds it."""
    at = 1 + shape.chosen(length - 3)
    at -= (at + 1) % BATCH_ROWS_MAX == 0  # the one behind it is in the same batch
    high = low + len(records["offset"])
    if low <= at < high - 1:
        _change_at(shape.change, records, at - low)
    if high == length and shape.change in _AT_END:
        _change_end(shape, records)


def _change_at(change: str, records: dict[str, Array], at: int) -> None:
    if change == "drop":
        for name, values in records.items():
            records[name] = np.delete(values, at)
    elif change == "corrupt":
        records["checksum"][at] ^= 1
    elif change == "swap":
        at += 1 if records["poll"][at] != records["poll"][at + 1] else 0
        at -= 2 if at + 1 == len(records["poll"]) else 0
        for values in records.values():
            values[[at, at + 1]] = values[[at + 1, at]]
    elif change == "exchange":
        for name in ("sender", "sequence", "checksum"):
            records[name][[at, at + 1]] = records[name][[at + 1, at]]


def _change_end(shape: Shape, records: dict[str, Array]) -> None:
    """At the end of the log: one record less, or one more."""
    if shape.change in ("hide", "truncate"):
        for name, values in records.items():
            records[name] = values[:-1]
        return
    last = {name: int(values[-1]) for name, values in records.items()}
    for name, value in (last | _added(shape, last)).items():
        records[name] = np.append(records[name], value)


def _added(shape: Shape, last: dict[str, int]) -> dict[str, int]:
    """What the record more differs in from the last one."""
    if shape.change == "reread":
        return {"poll": last["poll"] + 1}
    if shape.change == "invent":
        return {"offset": last["offset"] + 1, "sender": shape.producers}
    # A value of the partition again, or the one that was refused.
    sequence = shape.sends_per_producer
    if shape.change == "duplicate":
        turns = shape.rounds // shape.partitions
        place = shape.chosen(turns * RUN)
        sequence = (place // RUN * shape.partitions + shape.partition) * RUN + place % RUN
    checksum = int(checksums(np.int64(0), np.int64(sequence)))
    value = {"sender": 0, "sequence": sequence, "checksum": checksum}
    return value | {"offset": last["offset"] + 1}


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
