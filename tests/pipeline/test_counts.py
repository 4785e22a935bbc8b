"""Counts that must agree before a commit, and the numbers that an ingest shows."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.kit import Log, numbered, rows_of

from chronik.pipeline.data_files import WrongFile
from chronik.pipeline.fetch import OffsetRange
from chronik.pipeline.files import Written
from chronik.pipeline.ingest import Job, ingest_topic
from chronik.pipeline.tasks import Outcome, WrongCount, check_counts
from chronik.pipeline.warehouse import Warehouse, properties_of, state_of

RANGES = [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 5, 5)]


def outcome(start: int, end: int, read: int, *rows: int) -> Outcome:
    files = tuple(Written(str(one), one) for one in rows)
    return Outcome(OffsetRange("t", 0, start, end), read, files)


def test_counts_that_agree() -> None:
    check_counts(RANGES, [outcome(4, 10, 6, 4, 2), outcome(0, 4, 3, 3)])


@pytest.mark.parametrize(
    "outcomes",
    [
        [outcome(0, 10, 10, 9)],
        [outcome(0, 10, 10, 10, 1)],
        [outcome(0, 10, 11, 11)],
        [outcome(0, 9, 9, 9)],
        [outcome(1, 10, 9, 9)],
        [outcome(0, 5, 5, 5), outcome(6, 10, 4, 4)],
        [outcome(0, 5, 5, 5), outcome(0, 5, 5, 5), outcome(5, 10, 5, 5)],
        [],
    ],
)
def test_counts_that_differ_are_refused(outcomes: list[Outcome]) -> None:
    with pytest.raises(WrongCount):
        check_counts(RANGES, outcomes)


def lying(log: Log, place: Path, change: Any) -> Job:
    """A job whose tasks say something else than what they did."""
    job = Job(log.bootstrap, Warehouse(place))
    job.tasks = lambda work, ranges: [change(work(one)) for one in ranges]
    return job


@pytest.mark.integration
def test_a_batch_whose_rows_do_not_match_its_offsets_is_not_committed(
    log: Log, tmp_path: Path
) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 100))
    with pytest.raises(WrongCount):
        ingest_topic(lying(log, tmp_path, lambda one: replace(one, files=())), topic)
    one_more = lambda one: replace(  # noqa: E731
        one, read=99, files=tuple(replace(file, rows=99) for file in one.files)
    )
    with pytest.raises(WrongFile, match="100 rows, 99 were written"):
        ingest_topic(lying(log, tmp_path, one_more), topic)
    table = Warehouse(tmp_path).of_topic(topic)
    assert table is not None
    assert (table.snapshots(), state_of(table).next) == ([], {})
    ingest_topic(Job(log.bootstrap, Warehouse(tmp_path)), topic)
    table.refresh()
    assert rows_of(table) == log.read(topic, 1)


@pytest.mark.integration
def test_prometheus_and_the_snapshot_show_the_counts(log: Log, tmp_path: Path) -> None:
    topic = log.topic()
    log.send(topic, [(None, b'{"a": 1}'), (None, b"bad"), (None, b'{"a": 2}')])
    job = Job(log.bootstrap, Warehouse(tmp_path), "json")
    ingest_topic(job, topic)
    stop = job.counters.serve(0)
    stop()
    told = job.counters.text()
    assert f'chronik_ingest_rows_total{{topic="{topic}"}} 2.0' in told
    assert f'chronik_ingest_bad_records_total{{topic="{topic}"}} 1.0' in told
    assert f'chronik_ingest_commits_total{{topic="{topic}"}} 1.0' in told
    assert f'chronik_ingest_lag{{partition="0",topic="{topic}"}} 0.0' in told
    table = Warehouse(tmp_path).of_topic(topic)
    assert table is not None
    properties = properties_of(table.snapshots()[-1])
    names = ("chronik.rows", "chronik.bad-rows", "chronik.gaps")
    assert [properties[name] for name in names] == ["2", "1", "0"]
