"""Segment files give the rows that Fetch gives, and no more than the node vouches for."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.batches import ABORT, COMMIT, Row, batch, marker
from tests.pipeline.kit import Log, numbered

import chronik
from chronik.pipeline.decode import decode
from chronik.pipeline.fetch import OffsetRange, read_range
from chronik.pipeline.segments import high_watermark, local_answers


def node(folder: Path, watermark: int, segments: dict[int, bytes], name: str = "t-0") -> Path:
    """A data directory of Chronik's."""
    (folder / "topics" / name).mkdir(parents=True, exist_ok=True)
    for base, data in segments.items():
        (folder / "topics" / name / f"{base:020d}.log").write_bytes(data)
    body = f"chronik high-watermarks 1\n1\n{name} {watermark}\n".encode()
    (folder / "high-watermarks").write_bytes(body + b"crc32c %08x\n" % crc32c(body))
    return folder


def values(
    folders: Sequence[Path], start: int, end: int, *, committed: bool = False
) -> list[bytes]:
    found: list[bytes] = []
    answers = local_answers(map(str, folders), ("t", 0), start, end, committed=committed)
    for offset, answer in answers:
        columns = ("value",)
        rows = decode(
            answer.records, "t", 0, start=offset, end=end, columns=columns, aborted=answer.aborted
        )
        found += [value or b"" for value in rows.column(0).to_pylist()]
    return found


def plain(first: int, last: int) -> bytes:
    return b"".join(batch([Row(None, b"%d" % n)], n) for n in range(first, last))


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, last)]


def test_nothing_above_the_nodes_own_high_watermark_is_read(tmp_path: Path) -> None:
    folder = node(tmp_path, 7, {0: plain(0, 5), 5: plain(5, 20)})
    assert values([folder], 2, 20) == numbers(2, 7)
    assert values([folder], 7, 20) == []


def test_a_checkpoint_that_is_damaged_vouches_for_nothing(tmp_path: Path) -> None:
    folder = node(tmp_path, 7, {0: plain(0, 7)})
    told = (folder / "high-watermarks").read_bytes().replace(b"t-0 7", b"t-0 9")
    (folder / "high-watermarks").write_bytes(told)
    assert high_watermark(folder, "t", 0) == 0
    assert values([folder], 0, 7) == []


def test_kafkas_directory_and_checkpoint_are_understood(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(plain(0, 9) + bytes(500))
    (tmp_path / "replication-offset-checkpoint").write_text("0\n2\nother 3 5\nt 0 8\n")
    assert values([tmp_path], 0, 9) == numbers(0, 8)


def test_the_node_that_knows_most_is_read(tmp_path: Path) -> None:
    one = node(tmp_path / "1", 3, {0: plain(0, 9)})
    two = node(tmp_path / "2", 6, {0: plain(0, 9)})
    assert values([one, two], 0, 9) == numbers(0, 6)


def test_a_missing_file_ends_the_reading_and_a_hole_does_not(tmp_path: Path) -> None:
    hole = batch([Row(None, b"a", (), 0, 2), Row(None, b"b", (), 0, 9)], 5)
    folder = node(tmp_path, 99, {0: plain(0, 5), 5: hole, 15: plain(15, 18), 30: plain(30, 40)})
    assert values([folder], 3, 99) == [*numbers(3, 5), b"a", b"b", *numbers(15, 18)]


def test_a_start_before_the_first_file_is_left_to_fetch(tmp_path: Path) -> None:
    assert values([node(tmp_path, 9, {5: plain(5, 9)})], 2, 9) == []


def transaction(producer_id: int, offset: int) -> bytes:
    return batch([Row(None, b"%d" % offset)], offset, producer_id=producer_id, transactional=True)


def test_what_was_aborted_is_told_by_markers_also_behind_the_range(tmp_path: Path) -> None:
    log = [transaction(1, 0), transaction(2, 1), marker(ABORT, 2, 1), transaction(1, 3)]
    log += [transaction(2, 4), marker(COMMIT, 5, 1), marker(ABORT, 6, 2), transaction(2, 7)]
    log += [marker(COMMIT, 8, 2)]
    folder = node(tmp_path, 9, {0: b"".join(log[:3]), 3: b"".join(log[3:])})
    assert values([folder], 0, 9, committed=True) == [b"3", b"7"]
    assert values([folder], 0, 2, committed=True) == []
    assert values([folder], 1, 5, committed=True) == [b"3"]
    assert len(values([folder], 0, 9)) == 5


@settings(max_examples=60)
@given(st.data())
def test_any_mix_of_transactions_is_read_as_the_model_says(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Each step: a producer sends, commits or aborts; files roll anywhere."""
    begun: dict[int, list[int]] = {}
    kept: set[int] = set()
    segments, base = {0: b""}, 0
    steps = data.draw(
        st.lists(st.tuples(st.integers(0, 3), st.sampled_from("dddcar")), max_size=30)
    )
    closing = [(producer, "a") for producer in range(4)]
    offset = 0
    for producer, step in [*steps, *closing]:
        if step == "r" and offset > base:
            base, segments[offset] = offset, b""
        elif step == "d":
            begun.setdefault(producer, []).append(offset)
            segments[base] += transaction(producer, offset)
            offset += 1
        elif step in "ca" and producer in begun:
            told = begun.pop(producer)
            kept |= set(told) if step == "c" else set()
            segments[base] += marker(COMMIT if step == "c" else ABORT, offset, producer)
            offset += 1
    folder = node(tmp_path_factory.mktemp("node"), offset, segments)
    start = data.draw(st.integers(0, offset))
    end = data.draw(st.integers(start, offset))
    expected = [b"%d" % one for one in sorted(kept) if start <= one < end]
    assert values([folder], start, end, committed=True) == expected


@pytest.mark.integration
def test_rows_are_those_of_fetch(tmp_path: Path) -> None:
    configs = {"log.segment.bytes": 1 << 20}
    with chronik.embedded(data_dir=tmp_path, configs=configs) as broker:
        log = Log(broker.bootstrap)
        log.topic(name="t")
        for codec in ("none", "lz4", "zstd"):
            more = {"compression.type": codec, "batch.num.messages": 50}
            log.send("t", numbered(0, 5_000, 400), **more)
    # A node that stopped in order has written how far its log is sure.
    assert high_watermark(tmp_path, "t", 0) == 15_000
    with chronik.embedded(data_dir=tmp_path, configs=configs) as broker:
        log = Log(broker.bootstrap)
        log.send("t", numbered(0, 300))
        for start, end in ((0, 15_300), (4_321, 9_876), (14_990, 15_100), (15_100, 15_200)):
            wanted = OffsetRange("t", 0, start, end)
            fetched = pa.Table.from_batches(read_range(broker.bootstrap, wanted))
            local = pa.Table.from_batches(
                read_range(broker.bootstrap, wanted, segments=[str(tmp_path)])
            )
            assert local.num_rows == end - start
            assert local.equals(fetched)
