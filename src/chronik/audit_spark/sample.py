"""What every n-th value tells about times: the latencies and curves of a large ledger."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from chronik.audit.measures import Times
from chronik.audit.plots import Reads
from chronik.audit.rows import Kind, Outcome, Partition
from chronik.audit_spark.blocks import codes, numbers
from chronik.audit_spark.order import Array

COLUMNS = (
    "kind", "process", "sender", "sequence", "topic", "partition", "begin_ns", "end_ns", "outcome",
    "line",
)  # fmt: skip


class Sample(NamedTuple):
    """Sends and reads of some values."""

    times: Times
    reads: Reads
    """Of each value, where it was read first, and when."""


def sample_of(events: pa.Table) -> Sample:
    """What is said of the values whose sends are in the table."""
    values, is_send = _values(events), _equal(events, "kind", Kind.SEND)
    line, begin, end = (numbers(events, name) for name in ("line", "begin_ns", "end_ns"))
    sends = _one_of_each(values, np.flatnonzero(is_send), -line)
    reads = np.flatnonzero(~is_send)
    acked = sends[_equal(events, "outcome", Outcome.OK)[sends]]
    known = _one_of_each(values, reads[end[reads] >= 0], end)
    _, at, read = np.intersect1d(values[sends], values[known], return_indices=True)
    sent, read = sends[at][begin[sends[at]] >= 0], known[read][begin[sends[at]] >= 0]
    first = _one_of_each(values, reads, line)
    times = Times(
        list(zip(begin[acked].tolist(), end[acked].tolist(), strict=True)),
        list(zip(begin[sent].tolist(), end[read].tolist(), strict=True)),
    )
    return Sample(times, _places(events, first[end[first] >= 0]))


def _values(events: pa.Table) -> Array:
    """A number for each sender and sequence; a send is named after its process."""
    sender, names = codes(events.column("sender"))
    process, processes = codes(events.column("process"))
    known = {name: code for code, name in enumerate(names)}
    renamed = np.array([known.setdefault(name, len(known)) for name in processes], np.int64)
    unnamed = sender == known.get("", -1)
    unnamed &= _equal(events, "kind", Kind.SEND)
    who = np.where(unnamed, renamed[process], sender) if len(sender) else sender
    sequence = numbers(events, "sequence") + 1
    width = int(sequence.max(initial=0)) + 1
    assert len(known) * width < 1 << 62, "sender and sequence make one number"
    return who.astype(np.int64) * width + sequence


def _equal(events: pa.Table, name: str, text: str) -> Array:
    code, names = codes(events.column(name))
    return code == (names.index(text) if text in names else -1)


def _one_of_each(values: Array, rows: Array, rank: Array) -> Array:
    """Of the rows of each value the one with the lowest rank."""
    ordered = rows[np.lexsort([rank[rows], values[rows]])]
    _, first = np.unique(values[ordered], return_index=True)
    return ordered[first]


def _places(events: pa.Table, rows: Array) -> Reads:
    topic, topics = codes(events.column("topic"))
    columns: Any = (
        topic[rows],
        numbers(events, "partition")[rows],
        numbers(events, "end_ns")[rows],
    )
    told = zip(*(column.tolist() for column in columns), strict=True)
    return [(Partition(topics[name], partition), end_ns) for name, partition, end_ns in told]
