"""From all ledgers to the rows that must be judged one by one, and what stands for the others."""

from collections import defaultdict
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from chronik.audit.anomaly import Policy
from chronik.audit.rows import Kind, Outcome, Partition, Row, Value, partition_of, value_of
from chronik.audit_spark.blocks import Blocks
from chronik.audit_spark.chosen import Reader, Rows
from chronik.audit_spark.history import KEY, VALUE
from chronik.audit_spark.order import Array
from chronik.audit_spark.realtime import Sent, overtaken
from chronik.audit_spark.screen import suspicious
from chronik.audit_spark.survey import Survey, survey
from chronik.audit_spark.wanted import Wanted

VALUES_MAX = 100_000
"""More values than this out of place, and all rows are judged."""
ROWS_SHARE_MAX = 0.5
"""Where more than this would be judged row by row, all rows are."""
Values = dict[str, Array]
"""Per sender, sequences in order."""


class LeftOut(NamedTuple):
    """The blocks of all ledgers; the rows of those that are not judged were left out."""

    blocks: Blocks
    judged: Array
    """A mask of places."""


class Reduced(NamedTuple):
    """The rows, and what is known of the rest; nothing of it where no row was left out."""

    rows: Rows
    left_out: LeftOut | None = None
    sample: pa.Table | None = None
    """Events of every `step`-th sequence, where rows were left out."""
    step: int = 1


def reduced(
    reader: Reader, policy: Policy, block_size: int, share_max: float = ROWS_SHARE_MAX
) -> Reduced:
    """Screens the blocks of the logs and reads the rows of those that are not clean."""
    found = survey(reader.spark, reader.units, block_size)
    if found is None or _share_names(found.blocks):
        return Reduced(reader.everything())
    blocks = found.blocks
    bad = suspicious(blocks, found.notes, policy)
    if _rows_in(blocks, bad) > share_max * int(blocks.column("rows").sum()):
        return Reduced(reader.everything())
    rows = _read(reader, found, bad, {})
    late = _late(rows, blocks)
    more = overtaken(blocks, found.notes.clocks, late) & ~bad if late else np.zeros_like(bad)
    values = _strange_values(rows)
    if sum(map(len, values.values())) > VALUES_MAX:
        return Reduced(reader.everything())
    if values or more.any():
        bad |= more
        rows = _read(reader, found, bad, values)
    return Reduced(rows, LeftOut(blocks, bad), found.sample, found.step)


def _rows_in(blocks: Blocks, places: Array) -> int:
    return int(blocks.column("rows")[places[blocks.place]].sum())


def _share_names(blocks: Blocks) -> bool:
    """Two processes send under one name: their sequences say nothing about the values."""
    low, high = (blocks.column(f"sender_{end}")[blocks.sends] for end in ("min", "max"))
    named = set(zip(low.tolist(), blocks.process[blocks.sends].tolist(), strict=True))
    return bool((low != high).any()) or len({name for name, _ in named}) < len(named)


def _read(reader: Reader, found: Survey, bad: Array, values: Values) -> Rows:
    """The notes, the rows of these places, and those of these values."""
    blocks = found.blocks
    if not values and not bad.any() and reader.are_few(found.notes.table.num_rows):
        return Rows(found.notes.table)
    wanted = Wanted(
        everything=False, blocks=blocks.chosen(bad), block_size=blocks.size, values=values
    )
    about = _rows_in(blocks, bad) + 2 * sum(map(len, values.values()))
    return reader.some(wanted, found.notes, about)


def _late(rows: Rows, blocks: Blocks) -> list[Sent]:
    """Sends of unknown end that were read: other acks may have come before they began."""
    few, size = rows.few is not None, blocks.size
    placed = _late_in(rows.in_memory, size) if few else _late_of(rows.frame(), size)
    numbers = {key: number for number, key in enumerate(blocks.keys)}
    return [
        Sent(int(blocks.find(numbers[key], block)), process, begin_ns)
        for key, block, process, begin_ns in placed
    ]


_Placed = tuple[Partition, int, str, int]
"""Key, block, producer, and when it began."""


def _late_in(rows: list[Row], size: int) -> list[_Placed]:
    unknown = {
        value_of(row): row
        for row in rows
        if row.kind == Kind.SEND
        and (row.offset < 0 and row.outcome != Outcome.FAIL and row.begin_ns >= 0)
    }
    read = [(row, unknown.get(value_of(row))) for row in rows if row.kind == Kind.RECORD]
    return [
        (partition_of(row), row.offset // size, send.process, send.begin_ns)
        for row, send in read
        if send is not None and row.offset >= 0
    ]


def _late_of(rows: DataFrame, size: int) -> list[_Placed]:
    unknown = rows.where("kind = 'send' AND offset < 0 AND outcome != 'fail' AND begin_ns >= 0")
    begun = unknown.select(_sender(), "sequence", "process", "begin_ns")
    block = f.floor(f.col("offset") / size).alias("block")
    read = rows.where("kind = 'record' AND offset >= 0").select(*VALUE, *KEY, block)
    placed = read.join(begun, list(VALUE)).groupBy(*KEY, "block", "process")
    latest = placed.agg(f.max("begin_ns").alias("begin_ns")).collect()
    return [(Partition(one[0], one[1]), one[2], one[3], one[4]) for one in latest]


def _sender() -> Column:
    return (
        f.when(f.col("sender") == "", f.col("process")).otherwise(f.col("sender")).alias("sender")
    )


def _strange_values(rows: Rows) -> Values:
    """Values that were found where no ack says they are: their other places are asked for."""
    found = _strange_in(rows.in_memory) if rows.few is not None else _strange_of(rows.frame())
    values: dict[str, list[int]] = defaultdict(list)
    for sender, sequence in found:
        values[sender].append(sequence)
    return {sender: np.array(sorted(found), np.int64) for sender, found in values.items()}


def _strange_in(rows: list[Row]) -> set[Value]:
    placed = [row for row in rows if row.offset >= 0]
    acked = {
        (value_of(row), partition_of(row), row.offset) for row in placed if row.kind == Kind.SEND
    }
    return {
        value_of(row)
        for row in rows
        if row.kind in (Kind.RECORD, Kind.REPLICA)
        and (value_of(row), partition_of(row), row.offset) not in acked
    }


def _strange_of(rows: DataFrame) -> list[tuple[str, int]]:
    acked = rows.where("kind = 'send' AND offset >= 0").select(
        _sender(), "sequence", *KEY, "offset"
    )
    found = rows.where("kind IN ('record', 'replica')").select(*VALUE, *KEY, "offset")
    strange = found.join(acked, [*VALUE, *KEY, "offset"], "left_anti").select(*VALUE).distinct()
    return [(one[0], one[1]) for one in strange.limit(VALUES_MAX + 1).collect()]
