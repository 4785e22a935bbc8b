"""What the status says of a table: given commits, expected numbers."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.pipeline.kit import Log, numbered

from chronik.cli import main
from chronik.pipeline.ingest import Job, ingest_topic
from chronik.pipeline.status import PartitionStatus, TableStatus, rate, status
from chronik.pipeline.status_metrics import metrics_text
from chronik.pipeline.warehouse import Warehouse, table_name


@pytest.mark.parametrize(
    ("commits", "per_s"),
    [
        ([], None),
        ([(5_000, 100)], None),
        ([(5_000, 100), (5_000, 100)], None),
        ([(5_000, 100), (3_000, 900)], 50.0),
        ([(9_000, 100), (8_000, 200), (7_000, 5)], 150.0),
        ([(10_000_000, 40), (9_998_000, 1), (1_000, 7)], 20.0),
    ],
)
def test_the_rate_is_that_of_the_newest_commits(
    commits: list[tuple[int, int]], per_s: float | None
) -> None:
    assert rate(commits) == per_s


@pytest.mark.parametrize(
    ("table_end", "start", "end", "lag", "deleted"),
    [
        (40, 10, 100, 60, 0),
        (None, 10, 100, 90, 0),
        (40, 70, 100, 60, 30),
        (40, None, None, None, 0),
    ],
)
def test_lag_and_what_was_deleted_too_early(
    table_end: int | None, start: int | None, end: int | None, lag: int | None, deleted: int
) -> None:
    part = PartitionStatus("t", "t", 0, table_end, end, None, start)
    assert (part.lag, part.deleted) == (lag, deleted)


def test_prometheus_has_no_sample_for_what_is_not_known() -> None:
    part = PartitionStatus("a.b", "a_b", 1, 40, 100, 2_500, 0)
    text = metrics_text([TableStatus("a.b", "a_b", [part], 40, 2, 999, 3, 1, 2_500, None)])
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert 'chronik_pipeline_lag{partition="1",table="a_b",topic="a.b"} 60.0' in lines
    assert 'chronik_pipeline_bad_records{table="a_b",topic="a.b"} 3.0' in lines
    assert 'chronik_pipeline_last_commit_timestamp_seconds{table="a_b",topic="a.b"} 2.5' in lines
    assert not any("per_second" in line for line in lines)


@pytest.mark.integration
def test_the_status_of_a_real_table(log: Log, tmp_path: Path) -> None:
    topic = log.topic(2)
    log.send(topic, numbered(0, 40), partition=1)
    ingest_topic(Job(log.bootstrap, Warehouse(tmp_path), records_max=10), topic)
    log.send(topic, numbered(40, 45), partition=1)
    (found,) = status(log.bootstrap, tmp_path)
    assert (found.rows, found.bad, found.commits, found.lag) == (40, 0, 4, 5)
    options = ["-b", log.bootstrap, "-w", str(tmp_path), "--json"]
    told = CliRunner().invoke(main, ["pipeline", "status", *options])
    (said,) = json.loads(told.stdout)
    assert (said["table"], said["lag"], said["commits"]) == (table_name(topic), 5, 4)
    assert [(one["partition"], one["lag"]) for one in said["partitions"]] == [(0, 0), (1, 5)]


def test_a_warehouse_that_is_not_there_has_no_tables(tmp_path: Path) -> None:
    place = str(tmp_path / "none")
    told = CliRunner().invoke(main, ["pipeline", "status", "--cold", "-w", place])
    assert (told.exit_code, "No tables" in told.output) == (0, True)
    assert list(tmp_path.iterdir()) == []
