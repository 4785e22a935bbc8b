"""Diagnoses of text logs: the cause with its lines, or the admission that they do not suffice."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from chronik.audit.diagnose import diagnose_log_events, diagnose_logs
from chronik.audit.diagnosis import NOT_ENOUGH_EVIDENCE, Diagnosis
from chronik.audit.logs import parse
from chronik.cli.diagnose import diagnose

DATA = Path(__file__).parent / "data"
SEEDS = Path(__file__).resolve().parents[3] / "shared" / "seeds"


def of_text(text: str) -> Diagnosis:
    return diagnose_log_events(list(parse("node.log", text)))


def test_offsets_given_twice_are_the_cause_and_the_watermark_follows() -> None:
    found = diagnose_logs([DATA / "offsets_twice.log"])
    assert found.cause == "offset-assigned-twice"
    different, again = found.causes
    assert "batches of different size (215 and 167 records)" in different.statement
    assert [line.line for line in different.evidence] == [9, 11]
    assert "partition 1: base offsets 0 and 215 were given again" in again.statement
    assert "reached 430" in again.statement
    assert {one.name for one in found.consequences} == {"watermark-regression"}


def test_retries_and_an_overwrite_are_ruled_out_with_their_lines() -> None:
    found = diagnose_logs([DATA / "offsets_twice.log"])
    retry = next(one for one in found.ruled_out if one.name == "retry")
    assert "a retry has the same size" in retry.statement
    overwrite = next(one for one in found.ruled_out if one.name == "watermark-overwrite")
    assert "after new=430 the next line prints old=0" in overwrite.statement
    assert [line.line for line in overwrite.evidence] == [4, 6]


def test_a_watermark_frozen_and_moved_back_with_events_of_one_partition() -> None:
    found = diagnose_logs([DATA / "watermark_events.log"])
    names = [one.name for one in found.causes]
    assert names == [
        "watermark-regression",
        "watermark-not-advancing",
        "watermark-not-advancing",
        "watermark-events-partial",
    ]
    statements = " / ".join(one.statement for one in found.causes)
    assert "430 to 215, 372 to 215" in statements
    assert "partition 2: the watermark stayed at 1664 for 15 s" in statements
    assert "partition 0: frozen" in statements
    assert "1 of 3" in statements
    assert any("PRODUCE REQUEST" in text for text in found.missing)


def test_a_note_proves_nothing_by_sentences_examples_and_code() -> None:
    found = diagnose_logs([DATA / "note.md"])
    assert found.cause == NOT_ENOUGH_EVIDENCE
    assert found.events == {}


def test_growing_offsets_are_no_cause() -> None:
    lines = (DATA / "offsets_twice.log").read_text().splitlines()
    assert of_text("\n".join(lines[12:])).cause == NOT_ENOUGH_EVIDENCE


def test_a_retry_of_equal_size_alone_is_only_likely() -> None:
    line = "PRODUCE REQUEST: partition=0, base_offset=0, last_offset=9"
    (found,) = of_text(f"{line}\n{line}").causes
    assert (found.name, found.confidence) == ("offset-assigned-twice", "likely")


def test_a_fetch_that_found_data_and_was_not_answered() -> None:
    text = """
    FETCH START: topic=test, partition=0, offset=0
    DATA AVAILABLE: topic=test, partition=0, fetch_offset=0, high_watermark=1500, available=1500
    FETCH RAW: Trying raw bytes for test-0
    """
    assert of_text(text).cause == "fetch-hanging"
    answered = text + "FETCH SUCCESS: topic=test, partition=0, offset=0, bytes=65536\n"
    assert of_text(answered).cause == NOT_ENOUGH_EVIDENCE


def test_one_partition_got_nothing_while_others_were_served() -> None:
    text = """
    FETCH SUCCESS: partition=0, bytes=65536
    FETCH SUCCESS: partition=1, bytes=65536
    NO DATA: partition=2, fetch_offset=1000, high_watermark=1000 (waiting...)
    """
    assert of_text(text).cause == "one-partition-stalled"


def test_leader_rejections_are_counted_per_node() -> None:
    text = "\n".join(
        ["node1.log: ERROR produce refused: not leader for partition 1"] * 3
        + ["node2.log: PRODUCE REQUEST: partition=1, base_offset=0, last_offset=4"]
    )
    (found,) = of_text(text).causes
    assert found.name == "leader-rejections"
    assert "3 of 4 requests were rejected (3 at node1.log)" in found.statement


def test_broken_encodings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "node1.log"
    said = b"PRODUCE REQUEST: partition=0, base_offset=0, last_offset=%d"
    line = b"\xf0\x9f\x8e\xaf " + said + b" \xe2\x86\xff\n"
    path.write_bytes(line % 9 + line % 4)
    assert diagnose_logs([path]).cause == "offset-assigned-twice"


def test_the_command_prints_json() -> None:
    ran = CliRunner().invoke(diagnose, ["--logs", str(DATA / "offsets_twice.log"), "--json"])
    values = json.loads(ran.output)
    assert values["cause"] == "offset-assigned-twice"
    first = values["causes"][0]["evidence"][0]
    assert (first["file"], first["line"]) == ("offsets_twice.log", 9)


def test_the_command_shows_file_and_line() -> None:
    paths = [str(DATA / "offsets_twice.log"), str(DATA / "note.md")]
    ran = CliRunner().invoke(diagnose, ["--logs", *paths])
    assert "cause: offset assigned twice" in ran.output
    assert "offsets_twice.log:9" in ran.output


def test_the_command_wants_logs_or_traces() -> None:
    assert CliRunner().invoke(diagnose, []).exit_code == 2


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the investigation notes are not here")
def test_the_investigation_notes_themselves() -> None:
    causes = [diagnose_logs([path]).cause for path in sorted(SEEDS.glob("*.txt"))]
    assert causes == [
        "offset-assigned-twice",
        "watermark-regression",
        NOT_ENOUGH_EVIDENCE,
        NOT_ENOUGH_EVIDENCE,
        "leader-rejections",
    ]
    first = diagnose_logs([min(SEEDS.glob("*.txt"))])
    assert {line.line for one in first.causes for line in one.evidence} >= {21, 24, 27, 42, 48}
