"""What a million records cost on the way to a table, step by step: the figures of sizing.md.

    pipeline_costs.py [--records 2000000] [--rounds 3] [--modes raw,json,avro,protobuf] [--write]

One Chronik node and one process without Spark do the work of one task. `fetch` asks for a column
that needs no decoding, `decode` is what all columns cost more, `rows` makes the mode's columns,
`file` writes parquet; their figures are CPU seconds per million records. A commit is wall time.
Medians of the rounds; a first round warms up and does not count. The table goes to
results/costs-TIME.md; --write also puts it between the marks of docs/reference/sizing.md.
`other_cpu_s` is what else ran on the machine: if it is not small, the figures are noisy.
"""

import argparse
import io
import json
import os
import platform
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
from contestants import BENCH
from pipeline_fill import fill
from process_tree import cpu_s, machine_cpu_s

from chronik.pipeline import avro_table, json_table, protobuf_table, raw_table
from chronik.pipeline.fetch import OffsetRange, read_range
from chronik.pipeline.files import TableWriter
from chronik.pipeline.json_columns import BIGINT, DOUBLE, STRING
from pipeline import broker

TOPIC = "costs"
PAGE = BENCH.parent / "docs" / "reference" / "sizing.md"
MARKS = ("<!-- measured costs -->", "<!-- end of measured costs -->")
NEEDS = {"avro": "fastavro", "protobuf": "grpc_tools"}
FIELDS = {"id": BIGINT, "amount": DOUBLE, "note": STRING}
PROTO = 'syntax = "proto3"; message M { int64 id = 1; double amount = 2; string note = 3; }'
AVRO = {
    "type": "record",
    "name": "M",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": "string"},
    ],
}
ROWS_MEASURED_MAX = 1_000_000
"""Of these the modes' rows are made: batches that stay in memory."""
COMMITS, FILES_PER_COMMIT = 10, 8
Figures = dict[str, float]


class OneSchema:
    """A registry that needs no network."""

    def __init__(self, **answer: str) -> None:
        self.answer = answer

    def schema(self, _number: int) -> dict[str, Any]:
        return dict(self.answer)


def shape_of(mode: str) -> Any:
    registry: Any
    if mode == "raw":
        return raw_table.RawShape()
    if mode == "json":
        return json_table.JsonShape(FIELDS)
    if mode == "avro":
        registry = OneSchema(schema=json.dumps(AVRO))
        return avro_table.AvroShape(FIELDS, registry)
    registry = OneSchema(schema=PROTO, schemaType="PROTOBUF")
    return protobuf_table.ProtobufShape(FIELDS, registry)


def encoded(mode: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its JSON values in the mode's format."""
    if mode in {"raw", "json"}:
        return batch
    encode = _avro() if mode == "avro" else _protobuf
    values = pa.array([encode(json.loads(one)) for one in batch.column("value").to_pylist()])
    at = batch.schema.get_field_index("value")
    return batch.set_column(at, "value", values.cast(pa.binary()))


def _avro() -> Callable[[dict[str, Any]], bytes]:
    library = avro_table.fastavro()
    schema = library.parse_schema(AVRO)

    def encode(value: dict[str, Any]) -> bytes:
        stream = io.BytesIO()
        library.schemaless_writer(stream, schema, value)
        return b"\0\0\0\0\1" + stream.getvalue()

    return encode


def _protobuf(value: dict[str, Any]) -> bytes:
    note = value["note"].encode()
    body = b"\x08" + _varint(value["id"]) + b"\x11" + struct.pack("<d", value["amount"])
    return b"\0\0\0\0\1\0" + body + b"\x1a" + _varint(len(note)) + note


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


# -- measuring


def taken(work: Callable[[], Any]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def drained(bootstrap: str, records: int, columns: tuple[str, ...]) -> None:
    for batch in ranges(bootstrap, records, columns):
        assert batch.num_columns == len(columns)


def ranges(bootstrap: str, records: int, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    for partition in range(4):
        yield from read_range(
            bootstrap, OffsetRange(TOPIC, partition, 0, records // 4), columns=columns
        )


def reading(bootstrap: str, pid: int, records: int) -> Figures:
    """Fetch, decode, and what the broker does meanwhile, per million."""
    before = cpu_s(pid)
    fetch = taken(lambda: drained(bootstrap, records, ("partition",)))
    whole = taken(lambda: drained(bootstrap, records, raw_table.COLUMNS))
    broker_s = (cpu_s(pid) - before) / 2
    million = records / 1e6
    return {
        "fetch": fetch / million,
        "decode": (whole - fetch) / million,
        "broker": broker_s / million,
    }


def shaping(mode: str, batches: list[pa.RecordBatch], folder: Path) -> Figures:
    """Rows of a mode and their file, per million."""
    given = [encoded(mode, one) for one in batches]
    shape = shape_of(mode)
    made: list[pa.RecordBatch] = []

    def rows() -> None:
        for one in given:
            found, reasons = shape.rows(one)
            assert reasons is None or reasons.null_count == len(found)
            made.append(found)

    writer = TableWriter(folder.as_uri(), mode)

    def write() -> None:
        for one, source in zip(made, given, strict=True):
            writer.write(one, source)
        assert sum(one.rows for one in writer.close()) == sum(map(len, given))

    million = sum(map(len, given)) / 1e6
    figures = {f"rows {mode}": taken(rows) / million, f"file {mode}": taken(write) / million}
    size = sum(one.stat().st_size for one in folder.glob(f"{mode}-*"))
    return figures | {f"MB {mode}": size / 1e6 / million}


def committing(folder: Path) -> Figures:
    """Seconds of one commit, by format; the files are small, only their number counts."""
    from chronik.pipeline.warehouse import Warehouse  # noqa: PLC0415

    places: dict[str, Any] = {"iceberg": Warehouse(folder / "iceberg")}
    if find_spec("deltalake") is not None:
        from chronik.pipeline.delta_table import DeltaWarehouse  # noqa: PLC0415

        places["delta"] = DeltaWarehouse(folder / "delta")
    found = {}
    for name, place in places.items():
        table = place.open("costs", raw_table.ARROW, {})
        times = [commit_s(table, number) for number in range(COMMITS)]
        found[f"commit {name}"] = statistics.median(times)
    return found


def commit_s(table: Any, number: int) -> float:
    row = {"partition": 0, "offset": number, "timestamp": 0, "timestampType": 0}
    batch = pa.RecordBatch.from_pylist([row], schema=raw_table.ARROW)
    folder, _ = table.folders(str(number), "letters")
    files = []
    for _ in range(FILES_PER_COMMIT):
        writer = TableWriter(folder, "file")
        writer.write(batch, batch)
        files += writer.close()
    begun = time.perf_counter()
    table.commit(files, {0: (number, number + 1)}, str(number))
    return time.perf_counter() - begun


def one_round(bootstrap: str, pid: int, options: argparse.Namespace) -> Figures:
    begun, before, broker_s = time.process_time(), machine_cpu_s(), cpu_s(pid)
    figures = reading(bootstrap, pid, options.records)
    sample = min(options.records, ROWS_MEASURED_MAX)
    batches = list(ranges(bootstrap, sample, raw_table.COLUMNS))
    with tempfile.TemporaryDirectory(dir=BENCH / "work") as name:
        folder = Path(name)
        for mode in options.modes:
            figures |= shaping(mode, batches, folder)
        figures |= committing(folder)
    ours = time.process_time() - begun + cpu_s(pid) - broker_s
    return figures | {"other_cpu_s": machine_cpu_s() - before - ours}


# -- report


def report(rounds: list[Figures], options: argparse.Namespace) -> None:
    middle = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    facts = f"{os.cpu_count()} CPUs, Linux {platform.release()}, Python {platform.python_version()}"
    command = f"python bench/pipeline_costs.py --records {options.records}"
    head = (
        f"`{command} --rounds {options.rounds}`; {facts}; other work {middle['other_cpu_s']:.1f} s"
    )
    lines = [head, "", "| mode | fetch | decode | rows | file | sum | broker | file MB |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    reads = [middle["fetch"], middle["decode"]]
    for mode in options.modes:
        steps = [*reads, middle[f"rows {mode}"], middle[f"file {mode}"]]
        cells = [f"{one:.2f}" for one in (*steps, sum(steps), middle["broker"])]
        lines.append(f"| {mode} | {' | '.join(cells)} | {middle[f'MB {mode}']:.0f} |")
    lines += ["", f"| one commit of {FILES_PER_COMMIT} files | seconds |", "|---|---|"]
    lines += [f"| {k[7:]} | {v:.3f} |" for k, v in middle.items() if k.startswith("commit ")]
    text = "\n".join(lines) + "\n"
    stem = BENCH / "results" / time.strftime("costs-%Y%m%dT%H%M%SZ", time.gmtime())
    stem.parent.mkdir(exist_ok=True)
    stem.with_suffix(".md").write_text(text)
    stem.with_suffix(".json").write_text(json.dumps({"machine": facts, "rounds": rounds}, indent=1))
    sys.stdout.write(text)
    if options.write:
        before, _, rest = PAGE.read_text().partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        PAGE.write_text(f"{before}{MARKS[0]}\n{text}{MARKS[1]}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="that count, after one of warm-up")
    parser.add_argument("--modes", default="raw,json,avro,protobuf")
    parser.add_argument("--write", action="store_true", help="into docs/reference/sizing.md")
    options = parser.parse_args()
    wanted = options.modes.split(",")
    options.modes = [one for one in wanted if one not in NEEDS or find_spec(NEEDS[one])]
    with broker() as (bootstrap, pid):
        fill(bootstrap, TOPIC, options.records)
        rounds = [one_round(bootstrap, pid, options) for _ in range(options.rounds + 1)][1:]
    report(rounds, options)


if __name__ == "__main__":
    main()
