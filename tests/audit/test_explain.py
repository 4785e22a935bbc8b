"""Ledgers, traces and segment files together."""

from pathlib import Path

from tests.clients.batches import Batch

from chronik.audit.explain import committed_not_served, explain, watermark_rows
from chronik.audit.payload import PayloadWriter
from chronik.audit.replicas import Replicas, read_replicas
from chronik.audit.rows import Kind, Outcome, Row
from chronik.audit.verdict import judge
from chronik.trace.events import EventKind, TraceEvent

RUN = 5
NOTHING = Replicas([], [])


def stored(*sequences: int) -> bytes:
    writer = PayloadWriter(RUN, 0, 64)
    values = [writer.write(sequence)[0] for sequence in sequences]
    return Batch(values=values, base_offset=sequences[0]).encode()


def segment(folder: Path, data: bytes, partition: int = 0) -> Path:
    path = folder / "topics" / f"t-{partition}" / "00000000000000000000.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return path


def send(sequence: int) -> Row:
    row = Row(Kind.SEND, "p0", 1, 2, "t", 0, sequence, sequence=sequence)
    return row._replace(outcome=Outcome.OK)


def read(sequence: int) -> Row:
    return Row(Kind.RECORD, "c0", -1, 9, "t", 0, sequence, "p0", sequence, outcome=Outcome.OK)


END = Row(Kind.LOG, "final", topic="t", partition=0, position=0, offset=4)


def test_the_records_of_segment_files_are_rows(tmp_path: Path) -> None:
    segment(tmp_path / "a", stored(0, 1) + stored(2, 3))
    segment(tmp_path / "b", stored(0, 1))
    segment(tmp_path / "b" / "other", stored(7), partition=1)
    found = read_replicas({"a": tmp_path / "a", "b": tmp_path / "b"}, "t", RUN)
    places = [(row.process, row.partition, row.sequence, row.offset) for row in found.rows]
    assert places[:4] == [("a", 0, n, n) for n in range(4)]
    assert sorted(places[4:]) == [("b", 0, 0, 0), ("b", 0, 1, 1), ("b", 1, 7, 7)]
    assert all(row.kind == Kind.REPLICA and row.sender == "p0" for row in found.rows)
    assert found.damaged == []


def test_other_topics_and_torn_tails_are_left_out(tmp_path: Path) -> None:
    path = segment(tmp_path, stored(0, 1) + stored(2, 3)[:-1])
    other = path.parent.parent / "t-more-0"
    other.mkdir()
    (other / path.name).write_bytes(stored(5))
    found = read_replicas({"a": tmp_path}, "t", RUN)
    assert [row.sequence for row in found.rows] == [0, 1]


def test_a_flipped_bit_in_a_file_is_damage_on_disk(tmp_path: Path) -> None:
    data = bytearray(stored(0, 1) + stored(2, 3))
    data[-10] ^= 1
    path = segment(tmp_path, bytes(data))
    found = read_replicas({"a": tmp_path}, "t", RUN)
    assert [row.sequence for row in found.rows] == [0, 1]
    diagnosis = explain([], [], found)
    assert diagnosis.cause == "damaged-on-disk"
    assert diagnosis.causes[0].evidence[0].file == str(path)


def test_what_every_replica_has_and_nobody_was_given_was_not_served(tmp_path: Path) -> None:
    segment(tmp_path / "a", stored(0, 1, 2, 3))
    segment(tmp_path / "b", stored(0, 1, 2))
    rows = [*map(send, range(4)), read(0), read(3), END]
    one = read_replicas({"a": tmp_path / "a"}, "t", RUN)
    (cause,) = committed_not_served(rows, one.rows)
    assert cause.statement.startswith("2 values")
    both = read_replicas({"a": tmp_path / "a", "b": tmp_path / "b"}, "t", RUN)
    assert len(list(committed_not_served([*rows, read(1)], both.rows))) == 1
    assert list(committed_not_served([*rows, read(1), read(2)], both.rows)) == []
    behind = END._replace(offset=1)
    assert list(committed_not_served([*rows[:-1], behind], one.rows)) == []
    assert list(committed_not_served(rows, [])) == []


def test_watermarks_of_traces_are_judged_per_run_of_a_node() -> None:
    base = TraceEvent(0, 0, 1, EventKind.STARTED, topic="t", partition=0)

    def moved(at: int, level: int) -> TraceEvent:
        return base._replace(kind=EventKind.WATERMARK, mono_ns=at, high_watermark=level)

    back = watermark_rows([base, moved(1, 10), moved(2, 8)])
    assert judge(back).count("watermark-regression") == 1
    restarted = watermark_rows([base, moved(1, 10), base._replace(mono_ns=2), moved(3, 8)])
    assert judge(restarted).ok
    assert explain([], [], NOTHING).causes == []
