"""Trace files: round trip, rotation, bounds, torn tails, a full disk, kill -9."""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.lab.stage import QUIET_S
from chronik.trace.batches import to_batch
from chronik.trace.events import EventKind, Row, TraceEvent
from chronik.trace.files import RotatingFiles, trace_files
from chronik.trace.reader import events, read_batches, read_file, read_table
from chronik.trace.schema import COLUMNS, arrow_schema
from chronik.trace.settings import FileLimits, TraceSettings
from chronik.trace.sinks import Trace, open_trace
from chronik.trace.tracer import Tracer

DEFAULTS = FileLimits()


def ticking(step: int = 1) -> Callable[[], int]:
    ticks = itertools.count(step, step)
    return lambda: next(ticks)


def open_files(directory: Path, limits: FileLimits = DEFAULTS, events_max: int = 1000) -> Trace:
    # The long interval makes `flush` the only thing that writes.
    settings = TraceSettings("files", directory, events_max, flush_interval_s=600, limits=limits)
    return open_trace(settings, 5, ticking(), ticking())


def rows(count: int, start: int = 0) -> list[Row]:
    return [
        TraceEvent(n, n, 5, EventKind.APPENDED, "orders", 0, base_offset=n, client_id=f"c{n}")
        for n in range(start, start + count)
    ]


def offsets(directory: Path) -> list[int]:
    found = events(read_table(directory))
    return [event.base_offset for event in found if event.base_offset is not None]


def test_what_is_emitted_is_read_back_between_started_and_stopped(tmp_path: Path) -> None:
    trace = open_files(tmp_path)
    for offset in range(20):
        trace.tracer.emit(EventKind.ACKED, "orders", 2, base_offset=offset, acks=-1, detail="é")
    trace.close()
    first, *middle, last = events(read_table(tmp_path))
    assert (first.kind, last.kind) == (EventKind.STARTED, EventKind.STOPPED)
    assert last.record_count == 21
    assert [event.base_offset for event in middle] == list(range(20))
    assert {(e.topic, e.partition, e.acks, e.detail, e.node) for e in middle} == {
        ("orders", 2, -1, "é", 5)
    }


def test_a_flush_makes_events_readable_while_the_file_is_open(tmp_path: Path) -> None:
    trace = open_files(tmp_path)
    trace.tracer.emit(EventKind.ACKED, base_offset=1)
    assert trace.flush()
    assert offsets(tmp_path) == [1]
    trace.tracer.emit(EventKind.ACKED, base_offset=2)
    assert offsets(tmp_path) == [1]
    trace.close()
    assert offsets(tmp_path) == [1, 2]


def test_an_empty_directory_is_an_empty_table_with_the_schema(tmp_path: Path) -> None:
    table = read_table(tmp_path)
    assert table.num_rows == 0
    assert table.schema.equals(arrow_schema(), check_metadata=True)


@pytest.mark.parametrize("compression", ["lz4", "zstd", None])
def test_files_rotate_by_size_and_keep_every_row(tmp_path: Path, compression: str | None) -> None:
    limits = FileLimits(file_bytes_max=20_000, compression=compression)  # type: ignore[arg-type]
    files = RotatingFiles(tmp_path, 5, ticking(), ticking(), limits)
    for start in range(0, 2_000, 100):
        files.write(rows(100, start))
        files.rotate_if_due()
    files.close()
    assert len(trace_files(tmp_path)) > 2
    assert offsets(tmp_path) == list(range(2_000))


def test_files_rotate_by_age(tmp_path: Path) -> None:
    second = ticking(step=1_000_000_000)
    files = RotatingFiles(tmp_path, 5, ticking(), second, FileLimits(file_age_s_max=3.0))
    files.write(rows(1))
    assert [files.rotate_if_due() for _ in range(4)] == [False, False, True, False]


def test_the_directory_stays_within_its_bytes_and_deletions_are_events(tmp_path: Path) -> None:
    limits = FileLimits(file_bytes_max=6_000, total_bytes_max=30_000)
    trace = open_files(tmp_path, limits)
    for offset in range(30):
        for _ in range(40):
            trace.tracer.emit(EventKind.ACKED, "orders", 0, base_offset=offset)
        trace.flush()
    trace.close()
    # A file may end one batch above its bound.
    assert sum(path.stat().st_size for path in trace_files(tmp_path)) <= 30_000 + 6_000
    found = events(read_table(tmp_path))
    expired = [event for event in found if event.kind == EventKind.EXPIRED]
    assert expired
    assert all(e.detail and e.detail.startswith("trace-5-") and e.bytes for e in expired)
    assert max(event.base_offset or 0 for event in found) == 29


def test_many_crashes_leave_a_bounded_number_of_files(tmp_path: Path) -> None:
    for wall in range(12):
        files = RotatingFiles(tmp_path, 5, lambda: 1, ticking(), FileLimits(files_max=4))
        files.write(rows(1, wall))
    assert len(trace_files(tmp_path)) == 4
    assert offsets(tmp_path) == [8, 9, 10, 11]


def test_nodes_share_a_directory_without_touching_each_other(tmp_path: Path) -> None:
    for node in (1, 11):
        files = RotatingFiles(tmp_path, node, ticking(), ticking(), FileLimits(files_max=1))
        files.write(rows(3))
        files.close()
    assert [len(trace_files(tmp_path, node)) for node in (1, 11, None)] == [1, 1, 2]
    assert sum(batch.num_rows for batch in read_batches(tmp_path, node=11)) == 3


def test_a_file_cut_anywhere_gives_its_whole_batches(tmp_path: Path) -> None:
    files = RotatingFiles(tmp_path, 5, ticking(), ticking(), DEFAULTS)
    ends = [0]
    for start in range(3):
        files.write(rows(2, 2 * start))
        ends.append(trace_files(tmp_path)[0].stat().st_size)
    files.close()
    (path,) = trace_files(tmp_path)
    data = path.read_bytes()
    cut_file = tmp_path / "cut"
    for cut in range(0, len(data), 97):
        cut_file.write_bytes(data[:cut])
        found = [
            n for batch in read_file(cut_file) for n in batch.column("base_offset").to_pylist()
        ]
        whole = sum(1 for end in ends[1:] if end <= cut)
        assert found == list(range(2 * whole))


def test_a_torn_tail_is_reported_and_an_unknown_version_refused(tmp_path: Path) -> None:
    files = RotatingFiles(tmp_path, 5, ticking(), ticking(), DEFAULTS)
    files.write(rows(5))
    files.close()
    (path,) = trace_files(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    torn: list[Path] = []
    assert read_table(tmp_path, on_torn=lambda file, _: torn.append(file)).num_rows == 0
    assert torn == [path]
    path.write_bytes(whole.replace(b"chronik.trace.version", b"chronik.other.version"))
    with pytest.raises(ValueError, match="version"):
        read_table(tmp_path)


def test_fm62_drops_reach_the_files(tmp_path: Path) -> None:
    trace = open_files(tmp_path, events_max=10)
    trace.flush()
    for _ in range(25):
        trace.tracer.emit(EventKind.ACKED)
    trace.close()
    dropped = [e for e in events(read_table(tmp_path)) if e.kind == EventKind.DROPPED]
    assert [(e.record_count, e.detail) for e in dropped] == [(15, "queue full")]


def test_fm62_a_value_that_no_column_holds_costs_its_own_row_only(tmp_path: Path) -> None:
    trace = open_files(tmp_path)
    trace.tracer.emit(EventKind.ACKED, base_offset=1)
    trace.tracer.emit(EventKind.ACKED, base_offset=2, client_id="\udcff")
    trace.tracer.emit(EventKind.ACKED, base_offset=1 << 80)
    trace.tracer.emit(EventKind.ACKED, base_offset=3)
    trace.close()
    assert offsets(tmp_path) == [1, 3]
    dropped = [e.record_count for e in events(read_table(tmp_path)) if e.kind == EventKind.DROPPED]
    assert dropped == [2]


def test_fm63_a_directory_that_cannot_be_written_loses_traces_not_the_node(tmp_path: Path) -> None:
    target = tmp_path / "trace"
    target.write_text("in the way")
    trace = open_files(target)
    trace.tracer.emit(EventKind.ACKED, base_offset=1)
    assert trace.flush()
    assert trace.tracer.dropped == 2
    assert trace.writer is not None
    assert trace.writer.last_error
    target.unlink()
    trace.tracer.emit(EventKind.ACKED, base_offset=2)
    trace.close()
    assert offsets(target) == [2]
    dropped = [e.record_count for e in events(read_table(target)) if e.kind == EventKind.DROPPED]
    assert dropped == [2]


CHILD = """
import sys, time
from pathlib import Path
from chronik.trace.events import EventKind
from chronik.trace.settings import TraceSettings
from chronik.trace.sinks import open_trace

settings = TraceSettings("files", Path(sys.argv[1]), flush_interval_s=0.001)
trace = open_trace(settings, 5, time.time_ns, time.monotonic_ns)
offset = 0
while True:
    for _ in range(200):
        trace.tracer.emit(EventKind.ACKED, "orders", 0, base_offset=offset, detail="x" * 50)
        offset += 1
    if offset % 2000 == 0:
        trace.flush()
        print(offset, flush=True)
"""


def test_kill_9_leaves_every_flushed_event_readable(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child.stdout:
        flushed = [int(child.stdout.readline()) for _ in range(5)][-1]
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    found = offsets(tmp_path)
    assert len(found) >= flushed
    assert found == list(range(len(found)))


def test_settings_are_checked_before_anything_opens() -> None:
    with pytest.raises(ValueError, match="directory"):
        TraceSettings("files")
    with pytest.raises(ValueError, match="file_bytes_max"):
        FileLimits(file_bytes_max=10, total_bytes_max=5)


def test_the_real_clocks_fit_the_schema() -> None:
    subject = Tracer(1, time.time_ns, time.monotonic_ns)
    subject.emit(EventKind.ELECTION, peer=2, leader_epoch=3)
    assert subject.table().num_rows == 1


def test_columns_of_every_kind_come_back_whatever_is_null_in_them() -> None:
    """Also where a column has one value only, at either end: it must not be taken for empty."""
    width = len(COLUMNS)
    required: Row = (1, 2, 5, int(EventKind.ACKED))
    empty: Row = (*required, *[None] * (width - len(required)))
    for index in range(len(required), width):
        value = "text" if COLUMNS[index][1] == "string" else 7
        full = (*empty[:index], value, *empty[index + 1 :])
        for found in ([full, empty, empty], [empty, full, empty], [empty, empty, full]):
            batch = to_batch(found)
            batch.validate(full=True)
            assert events(batch) == found
    assert to_batch([empty]).schema.equals(arrow_schema(), check_metadata=True)


VALUES = st.one_of(st.none(), st.integers(-(1 << 7), (1 << 7) - 1))
TEXTS = st.one_of(st.none(), st.sampled_from(["orders", "", "é"]))
ROWS = st.tuples(
    *[st.integers(0, 1 << 62), st.integers(0, 1 << 62), st.integers(1, 9), st.integers(1, 33)],
    *[TEXTS if type_name == "string" else VALUES for _, type_name in COLUMNS[4:]],
)


@given(st.lists(ROWS, max_size=5))
def test_any_rows_are_the_same_after_arrow(found: list[Row]) -> None:
    batch = to_batch(found)
    batch.validate(full=True)
    assert events(batch) == found


def test_a_number_too_large_for_its_column_is_refused_and_not_cut() -> None:
    subject = Tracer(5, ticking(), ticking())
    subject.emit(EventKind.ACKED, partition=(1 << 31) - 1, acks=-(1 << 15), base_offset=1 << 62)
    assert (len(subject), subject.dropped) == (1, 0)
    subject.emit(EventKind.ACKED, partition=1 << 31)
    subject.emit(EventKind.ACKED, acks=-(1 << 15) - 1)
    subject.emit(EventKind.ACKED, base_offset=1 << 63)
    assert (len(subject), subject.dropped) == (1, 3)


def test_a_flush_is_due_before_the_lab_calls_it_quiet() -> None:
    assert TraceSettings().flush_interval_s < QUIET_S
