"""Tables and JSON of what `chronik.storage.inspect` finds in files."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import click

from chronik.cli._formatting import json_field
from chronik.cli._output import count_text, print_json, print_table, size_text
from chronik.storage.fs import RealFileSystem
from chronik.storage.index import OFFSET_MAGIC, TIME_MAGIC
from chronik.storage.inspect import (
    BatchInfo,
    Unreadable,
    inspect_checkpoint,
    inspect_index,
    inspect_segment,
    inspect_snapshot,
)
from chronik.storage.producer_snapshot import MAGIC as SNAPSHOT_MAGIC
from chronik.wire.record_iter import CorruptRecords, Record, iter_records

Kind = Literal["partition", "segment", "index", "snapshot", "checkpoint"]

EXCERPT_LENGTH_MAX = 60
_BY_MAGIC: dict[bytes, Kind] = {
    OFFSET_MAGIC: "index",
    TIME_MAGIC: "index",
    SNAPSHOT_MAGIC: "snapshot",
    b"chro": "checkpoint",
}
_BY_SUFFIX: dict[str, Kind] = {
    ".log": "segment",
    ".index": "index",
    ".timeindex": "index",
    ".snapshot": "snapshot",
}
_RAFT = (b"CrWL", b"CrSN")


def kind_of(path: Path) -> Kind:
    """What a path holds, by its first bytes, else by its suffix."""
    if path.is_dir():
        if logs := _logs(path):
            return _segments_or_raft(path, logs[0])
        raise click.ClickException(
            f"{path} is no partition: it holds no segment. Partitions are the folders in "
            "DATA/topics, e.g. orders-0"
        )
    if not path.is_file():
        raise click.ClickException(f"{path} is neither a file nor a folder")
    with path.open("rb") as file:
        magic = file.read(4)
    if magic in _RAFT:
        raise _is_raft(path)
    kind = _BY_MAGIC.get(magic) or _BY_SUFFIX.get(path.suffix)
    if kind is None:
        raise click.ClickException(
            f"{path} is nothing that can be inspected: give a .log, .index, .timeindex or "
            ".snapshot file, a checkpoint, or a partition's folder"
        )
    return kind


def _logs(folder: Path) -> list[Path]:
    """The segments, which are named after their first offset; a node's own node.log is none."""
    return sorted(log for log in folder.glob("*.log") if log.stem.isdecimal())


def _segments_or_raft(path: Path, log: Path) -> Kind:
    with log.open("rb") as file:
        if file.read(4) in _RAFT:
            raise _is_raft(path)
    return "partition"


def _is_raft(path: Path) -> click.ClickException:
    return click.ClickException(
        f"{path} belongs to the Raft log of the metadata, which has no batches to show: "
        "'chronik topic describe' shows what it means"
    )


# -- a segment


def show_segment(path: Path, *, as_json: bool) -> bool:
    """One row per batch; False where bytes are damaged."""
    found = list(inspect_segment(RealFileSystem(), str(path)))
    bad = [one for one in found if not _is_good(one)]
    if as_json:
        for one in found:
            _json_line(_batch_json(one))
        return not bad
    print_table(
        ("position", "offsets", "records", "size", "epoch", "time", "codec", "producer", "state"),
        [_batch_row(one) for one in found],
        numbers=("position", "records", "size", "epoch"),
        red=lambda index: not _is_good(found[index]),
    )
    batches = [one for one in found if isinstance(one, BatchInfo)]
    _conclude(path, batches, bad)
    return not bad


def _is_good(found: BatchInfo | Unreadable) -> bool:
    return isinstance(found, BatchInfo) and found.crc_ok


def _batch_json(found: BatchInfo | Unreadable) -> dict[str, Any]:
    state = "ok" if _is_good(found) else "bad crc" if isinstance(found, BatchInfo) else "unreadable"
    return {**asdict(found), "state": state}


def _batch_row(found: BatchInfo | Unreadable) -> tuple[object, ...]:
    if isinstance(found, Unreadable):
        state = f"UNREADABLE: {found.reason}"
        return (found.position, "", "", found.size, "", "", "", "", state)
    producer = "-"
    if found.producer_id >= 0:
        producer = f"{found.producer_id}/{found.producer_epoch} seq {found.base_sequence}"
    marks = [
        mark
        for mark, present in (
            ("ok" if found.crc_ok else "BAD CRC", True),
            ("transactional", found.is_transactional),
            ("control", found.is_control),
        )
        if present
    ]
    return (
        found.position,
        f"{found.base_offset}-{found.last_offset}",
        found.record_count,
        found.size,
        found.leader_epoch,
        time_text(found.max_timestamp),
        found.codec,
        producer,
        ", ".join(marks),
    )


def _conclude(path: Path, batches: list[BatchInfo], bad: list[BatchInfo | Unreadable]) -> None:
    records = sum(batch.record_count for batch in batches)
    click.echo(
        f"{count_text(len(batches), 'batch', 'batches')}, "
        f"{count_text(records, 'record')}, {size_text(path.stat().st_size)}"
    )
    for one in bad:
        reason = "bad CRC" if isinstance(one, BatchInfo) else one.reason
        click.secho(f"damaged at byte {one.position}: {reason}", fg="red", err=True)


# -- the records of a segment


def show_records(path: Path, *, as_json: bool) -> bool:
    """One row per record; False where a batch is damaged."""
    rows: list[tuple[object, ...]] = []
    problems = []
    with path.open("rb") as file:
        for batch in inspect_segment(RealFileSystem(), str(path)):
            if isinstance(batch, Unreadable) or not batch.crc_ok:
                problems.append(batch)
                continue
            file.seek(batch.position)
            try:
                for record in iter_records(file.read(batch.size)):
                    if as_json:
                        _json_line(_record_json(record, batch))
                    else:
                        rows.append(_record_row(record, batch))
            except CorruptRecords as error:
                problems.append(Unreadable(batch.position, batch.size, str(error)))
    if not as_json:
        print_table(
            ("offset", "time", "key", "value", "headers", "batch at"),
            rows,
            numbers=("offset", "batch at"),
        )
    for one in problems:
        reason = "bad CRC" if isinstance(one, BatchInfo) else one.reason
        click.secho(f"damaged at byte {one.position}: {reason}", fg="red", err=True)
    return not problems


def _record_row(record: Record, batch: BatchInfo) -> tuple[object, ...]:
    headers = ",".join(f"{name}={_excerpt(value)}" for name, value in record.headers)
    value = "(control record)" if batch.is_control else _excerpt(record.value)
    return (
        record.offset,
        time_text(record.timestamp),
        _excerpt(record.key),
        value,
        headers,
        batch.position,
    )


def _record_json(record: Record, batch: BatchInfo) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        **json_field("key", record.key),
        **json_field("value", record.value),
        "headers": [{"name": name, **json_field("value", it)} for name, it in record.headers],
        "batch_position": batch.position,
        "is_control": batch.is_control,
    }


def _excerpt(value: bytes | None) -> str:
    if value is None:
        return "(null)"
    text = value.decode(errors="backslashreplace")
    printable = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    if len(printable) > EXCERPT_LENGTH_MAX:
        return printable[:EXCERPT_LENGTH_MAX] + "..."
    return printable


# -- the other files


def show_index(path: Path, *, as_json: bool) -> bool:
    """The header's summary and the entries."""
    found = inspect_index(RealFileSystem(), str(path))
    if found is None:
        raise click.ClickException(
            f"damaged: {path} has no whole header. Indexes are made anew when the node starts"
        )
    if as_json:
        print_json({**asdict(found), "summary": found.summary._asdict()})
        return found.is_whole
    for name, value in found.summary._asdict().items():
        shown = time_text(value) if name.endswith("timestamp") else value
        click.echo(f"{name.replace('_', ' ')}: {shown}")
    columns = ("offset", "position") if found.kind == "offset" else ("time", "offset")
    rows = [
        (first if found.kind == "offset" else time_text(first), second)
        for first, second in found.entries
    ]
    if rows:
        print_table(columns, rows, numbers=("offset", "position"))
    if not found.is_whole:
        click.secho("damaged: the entries do not match their checksum", fg="red", err=True)
    return found.is_whole


def show_checkpoint(path: Path, *, as_json: bool) -> bool:
    """Its entries, a line each."""
    found = inspect_checkpoint(RealFileSystem(), str(path))
    if as_json:
        print_json(asdict(found))
        return True
    click.echo(f"{found.kind}: {count_text(len(found.entries), 'entry', 'entries')}")
    for entry in found.entries:
        click.echo(f"  {entry}")
    return True


def show_snapshot(path: Path, *, as_json: bool) -> bool:
    """One row per idempotent producer."""
    found = inspect_snapshot(RealFileSystem(), str(path))
    if as_json:
        print_json(
            [{**one._asdict(), "batches": [it._asdict() for it in one.batches]} for one in found]
        )
        return True
    print_table(
        ("producer", "epoch", "last time", "transaction from", "last batches"),
        [
            (
                one.producer_id,
                one.producer_epoch,
                time_text(one.last_timestamp),
                one.transaction_first_offset if one.transaction_first_offset >= 0 else None,
                len(one.batches),
            )
            for one in found
        ],
        numbers=("producer", "epoch", "last batches"),
    )
    return True


# -- a partition


def show_partition(path: Path, *, as_json: bool) -> bool:
    """One row per segment, and the small files next to them."""
    segments = [_segment_summary(log) for log in _logs(path)]
    good = not any(segment["damage"] for segment in segments)
    checkpoints = {one.kind: list(one.entries) for one in _checkpoints(path)}
    if as_json:
        print_json({"path": str(path), "segments": segments, "checkpoints": checkpoints})
        return good
    columns = ("file", "offsets", "batches", "records", "size", "first", "last", "damage")
    print_table(
        columns,
        [_segment_row(segment) for segment in segments],
        numbers=("batches", "records", "size"),
        red=lambda index: bool(segments[index]["damage"]),
    )
    for kind, entries in checkpoints.items():
        click.echo(f"{kind}: {'; '.join(entries) or 'empty'}")
    return good


def _segment_summary(log: Path) -> dict[str, Any]:
    found = list(inspect_segment(RealFileSystem(), str(log)))
    batches = [one for one in found if isinstance(one, BatchInfo)]
    bad = [one for one in found if not _is_good(one)]
    times = [batch.max_timestamp for batch in batches if batch.max_timestamp >= 0]
    return {
        "file": log.name,
        "base_offset": int(log.stem),
        "end_offset": batches[-1].last_offset + 1 if batches else int(log.stem),
        "batches": len(batches),
        "records": sum(batch.record_count for batch in batches),
        "size_bytes": log.stat().st_size,
        "first_timestamp_ms": min(times, default=None),
        "last_timestamp_ms": max(times, default=None),
        "damage": [
            f"byte {one.position}: {'bad CRC' if isinstance(one, BatchInfo) else one.reason}"
            for one in bad
        ],
    }


def _segment_row(segment: dict[str, Any]) -> tuple[object, ...]:
    return (
        segment["file"],
        f"{segment['base_offset']}-{segment['end_offset'] - 1}" if segment["batches"] else "none",
        segment["batches"],
        segment["records"],
        size_text(segment["size_bytes"]),
        time_text(segment["first_timestamp_ms"]),
        time_text(segment["last_timestamp_ms"]),
        "; ".join(segment["damage"]) or "none",
    )


def _checkpoints(path: Path) -> Iterator[Any]:
    for file in sorted(path.iterdir()):
        if file.is_file() and not file.suffix:
            with file.open("rb") as opened:
                if opened.read(8) != b"chronik ":
                    continue
            yield inspect_checkpoint(RealFileSystem(), str(file))


# -- texts


def _json_line(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


def time_text(time_ms: int | None) -> str:
    """2026-07-31T12:00:00.123Z; records may hold any number, so one that is no time stays one."""
    if time_ms is None or time_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


SHOW: dict[Kind, Callable[..., bool]] = {
    "partition": show_partition,
    "index": show_index,
    "segment": show_segment,
    "snapshot": show_snapshot,
    "checkpoint": show_checkpoint,
}
