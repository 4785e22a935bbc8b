"""`chronik inspect` on files that are whole and on files that are not."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.storage.support import NOW, batch

from chronik.cli import main
from chronik.storage.checkpoints import encode_lines

BATCHES = (batch(0, (NOW, NOW + 5)), batch(2, codec=4, producer=(9, 0, 3), value=b"zipped"))


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(b"".join(BATCHES))
    return path


def inspect(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["inspect", *map(str, arguments)])


def damage(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_segment_is_one_row_per_batch(segment: Path) -> None:
    result = inspect(segment)
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[1][:4] == ["0", "0-1", "2", str(len(BATCHES[0]))]
    assert "zstd" in rows[2]
    assert rows[-1] == f"2 batches, 3 records, {segment.stat().st_size} B".split()


def test_records_are_decompressed_and_shown(segment: Path) -> None:
    result = inspect(segment, "--records")
    assert result.exit_code == 0
    assert "zipped" in result.stdout
    lines = inspect(segment, "--records", "--json").stdout.splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["offset"] for record in records] == [0, 1, 2]
    assert records[1]["timestamp_ms"] == NOW + 5
    assert records[2]["value"] == "zipped"
    assert records[2]["batch_position"] == len(BATCHES[0])


def test_a_bad_crc_is_named_with_its_position_and_ends_with_1(segment: Path) -> None:
    damage(segment, segment.stat().st_size - 1)
    for options in ((), ("--records",)):
        result = inspect(segment, *options)
        assert result.exit_code == 1
        assert f"damaged at byte {len(BATCHES[0])}: bad CRC" in result.stderr
    states = [json.loads(line)["state"] for line in inspect(segment, "--json").stdout.splitlines()]
    assert states == ["ok", "bad crc"]


def test_a_torn_tail_is_named_with_its_position(segment: Path) -> None:
    segment.write_bytes(segment.read_bytes()[:-3])
    result = inspect(segment)
    assert result.exit_code == 1
    assert f"damaged at byte {len(BATCHES[0])}" in result.stderr


def test_a_partition_is_one_row_per_segment(segment: Path) -> None:
    (segment.parent / "00000000000000000003.log").write_bytes(batch(3))
    (segment.parent / "leader-epoch-checkpoint").write_bytes(
        encode_lines("leader-epoch-checkpoint", ["0 0"])
    )
    result = inspect(segment.parent)
    assert result.exit_code == 0
    assert "0-2" in result.stdout
    assert "3-3" in result.stdout
    assert "leader-epoch-checkpoint: 0 0" in result.stdout
    found = json.loads(inspect(segment.parent, "--json").stdout)
    assert [one["records"] for one in found["segments"]] == [3, 1]


def test_a_damaged_partition_ends_with_1(segment: Path) -> None:
    damage(segment, 70)
    result = inspect(segment.parent)
    assert result.exit_code == 1
    assert "byte 0: bad CRC" in result.stdout


def test_a_checkpoint_whole_and_damaged(tmp_path: Path) -> None:
    path = tmp_path / "recovery-points"
    path.write_bytes(encode_lines("recovery-points", ["orders-0 15"]))
    assert inspect(path).stdout.splitlines() == ["recovery-points: 1 entry", "  orders-0 15"]
    damage(path, 30)
    result = inspect(path)
    assert result.exit_code == 1
    assert "damaged" in result.stderr


@pytest.mark.parametrize("name", ["x.index", "x.timeindex", "x.snapshot"])
def test_garbage_is_damage_and_no_traceback(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"garbage")
    result = inspect(tmp_path / name)
    assert result.exit_code == 1
    assert "damaged" in result.stderr


def test_what_cannot_be_inspected_is_refused_with_what_can(tmp_path: Path, segment: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert ".timeindex" in inspect(tmp_path / "notes.txt").stderr
    assert "DATA/topics" in inspect(tmp_path).stderr
    assert inspect(tmp_path / "missing").exit_code == 2
    assert "--records is for a segment" in inspect(segment.parent, "--records").stderr


def test_the_folder_of_a_node_is_no_partition_though_it_has_a_node_log(tmp_path: Path) -> None:
    (tmp_path / "node.log").write_text("what the node said\n")
    result = inspect(tmp_path)
    assert result.exit_code == 1
    assert "it holds no segment. Partitions are the folders in DATA/topics" in result.stderr


def test_a_damaged_snapshot_is_named(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000007.snapshot"
    path.write_bytes(b"garbage")
    assert f"damaged: {path}: checksum does not match" in inspect(path).stderr


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    result = inspect(path)
    assert result.exit_code == 1
    assert "neither a file nor a folder" in result.stderr
