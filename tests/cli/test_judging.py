"""`audit` and `diagnose` at the prompt: several nodes, and input that is none."""

import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from chronik.cli.audit import audit
from chronik.cli.diagnose import diagnose
from chronik.trace.events import EventKind
from chronik.trace.settings import TraceSettings
from chronik.trace.sinks import open_trace


def traces_of(folder: Path, node: int, watermarks: list[int], elected: int | None = None) -> Path:
    """A node's traces that say where its watermark was."""
    settings = TraceSettings(mode="files", directory=folder / f"node{node}" / "traces")
    trace = open_trace(settings, node, time.time_ns, time.monotonic_ns)
    if elected is not None:
        trace.tracer.emit(EventKind.ELECTION, "orders", 0, peer=elected)
    for high_watermark in watermarks:
        trace.tracer.emit(EventKind.WATERMARK, "orders", 0, high_watermark=high_watermark)
    trace.close()
    return folder / f"node{node}"


def diagnosed(*arguments: object) -> Result:
    return CliRunner().invoke(diagnose, [str(argument) for argument in arguments])


def test_traces_of_several_nodes_are_read_together(tmp_path: Path) -> None:
    first = traces_of(tmp_path, 1, [1, 2, 3])
    second = traces_of(tmp_path, 2, [1, 3, 2])
    for asked in (("--traces", first, "--traces", second), ("--traces", first, second)):
        ran = diagnosed(*asked, "--json")
        assert ran.exit_code == 0, ran.output
        found = json.loads(ran.stdout)
        assert found["cause"] == "watermark-regression"
        assert found["events"]["WATERMARK"] == 6


def test_how_soon_followers_knew_a_watermark(tmp_path: Path) -> None:
    folders = [traces_of(tmp_path, 1, [1, 2, 3], 1), traces_of(tmp_path, 2, [1, 3], 1)]
    ran = diagnosed("--traces", *folders, "--watermarks", "--json")
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert found["moves"] == 3
    assert [(row["follower"], row["known"]) for row in found["followers"]] == [
        ("node 2", 3),
        ("all", 3),
    ]
    ran = diagnosed("--traces", *folders, "--watermarks")
    assert "3 moves of watermarks" in ran.output
    assert "p99 ms" in ran.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give either"),
        (["--logs", "noise", "--watermarks"], "needs --traces"),
        (["--traces", "empty"], "holds no trace files"),
        (["--logs", "noise", "--traces", "empty"], "give either"),
        (["--logs", "noise", "empty"], "is a directory"),
        (["--traces", "absent"], "does not exist"),
    ],
)
def test_diagnose_says_what_it_cannot_read(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("noise").write_bytes(os.urandom(2_000))
    ran = diagnosed(*arguments)
    assert ran.exit_code == 2
    assert said in ran.output


def test_noise_is_not_enough_evidence(tmp_path: Path) -> None:
    noise = tmp_path / "noise.log"
    noise.write_bytes(os.urandom(20_000))
    ran = diagnosed("--logs", noise)
    assert ran.exit_code == 0
    assert "not enough evidence" in ran.output


def write_stranger(path: Path) -> None:
    """An Arrow file of somebody else."""
    table = pa.table({"a": [1], "b": [2]})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("noise.ledger", b"\x07" * 900, "noise.ledger is no ledger"),
        ("text.ledger", b"not a ledger at all\n", "text.ledger is no ledger"),
        ("stranger.ledger", b"", "is an Arrow file, but no ledger: it has a, b"),
        ("empty.ledger", b"", "no rows of a ledger are in"),
        ("noise.json", b"\x07" * 900, "no rows of a ledger are in"),
        ("half.jsonl", b'hello\n{"name":"record_data"}\n', "half.jsonl:2: not a Verifiable"),
        ("wrong.jsonl", b'{"name":"producer_send_success","offset":"x"}', "wrong.jsonl:1: not a"),
        ("list.jsonl", b'{"name":"partitions_assigned","partitions":[7]}', "list.jsonl:1: not a"),
    ],
)
def test_audit_names_the_file_that_it_cannot_read(
    name: str, content: bytes, said: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    if name == "stranger.ledger":
        write_stranger(path)
    ran = CliRunner().invoke(audit, [str(path)])
    assert ran.exit_code == 2, "1 means anomalies"
    assert said in " ".join(ran.output.split())
