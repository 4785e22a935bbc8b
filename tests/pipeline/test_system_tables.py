"""Given facts, expected rows: the tables about the cluster itself."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer
from tests.pipeline.kit import QUIET, Log, numbered

from chronik.cli import main
from chronik.pipeline import (
    audits_table,
    brokers_table,
    groups_table,
    lag_table,
    offsets_table,
    snapshots_table,
    topics_table,
    traces_table,
)
from chronik.pipeline.cluster_facts import (
    Broker,
    Facts,
    Group,
    Member,
    OffsetFacts,
    PartitionFacts,
)
from chronik.pipeline.ingest import Job, ingest_topic
from chronik.pipeline.sql_text import BadQuery
from chronik.pipeline.system_tables import NAMES, Places, system_tables
from chronik.pipeline.warehouse import Warehouse, table_name
from chronik.trace.batches import to_batch
from chronik.trace.events import EventKind, TraceEvent

FACTS = Facts(
    controller=2,
    brokers=[Broker(1, "a", 9092), Broker(2, "b", 9092, "r1")],
    topics={"__consumer_offsets": True, "orders": False},
    partitions=[
        PartitionFacts("__consumer_offsets", 0, 1, (1,), (1,)),
        PartitionFacts("orders", 0, 1, (1, 2), (1, 2)),
        PartitionFacts("orders", 1, None, (2, 1), (2,)),
    ],
    offsets={
        ("__consumer_offsets", 0): OffsetFacts(0, 3, 3),
        ("orders", 0): OffsetFacts(5, 90, 100),
    },
    groups=[
        Group(
            "g",
            "Stable",
            "classic",
            "range",
            1,
            (Member("m-1", "client", "10.0.0.1", (("orders", 0), ("orders", 1))),),
            {("orders", 0): 70, ("gone", 3): 8},
        ),
        Group("new", "Empty", "consumer", "", None),
    ],
)


def test_topics() -> None:
    assert topics_table.rows(FACTS).to_pylist() == [
        {
            "topic": "__consumer_offsets",
            "partitions": 1,
            "replication_factor": 1,
            "under_replicated": 0,
            "offline": 0,
            "internal": True,
        },
        {
            "topic": "orders",
            "partitions": 2,
            "replication_factor": 2,
            "under_replicated": 1,
            "offline": 1,
            "internal": False,
        },
    ]


def test_offsets() -> None:
    found = offsets_table.rows(FACTS).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        ("__consumer_offsets", 0, 0, 3, 3, 1, [1], [1]),
        ("orders", 0, 5, 90, 100, 1, [1, 2], [1, 2]),
        ("orders", 1, None, None, None, None, [2, 1], [2]),
    ]


def test_brokers() -> None:
    found = brokers_table.rows(FACTS).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        (1, "a", 9092, None, False, 2, 3, 1),
        (2, "b", 9092, "r1", True, 0, 2, 0),
    ]


def test_lag() -> None:
    found = lag_table.rows(FACTS).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        ("g", "gone", 3, 8, None, None, None, None, None),
        ("g", "orders", 0, 70, 100, 30, "client", "m-1", "10.0.0.1"),
        ("g", "orders", 1, None, None, None, "client", "m-1", "10.0.0.1"),
    ]


def test_groups() -> None:
    found = groups_table.rows(FACTS).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        ("g", "Stable", "classic", "range", 1, 1, 30),
        ("new", "Empty", "consumer", "", None, 0, None),
    ]


def event(time_ns: int, kind: EventKind, offset: int) -> TraceEvent:
    given = {"time_ns": time_ns, "mono_ns": 1, "node": 1, "kind": kind, "base_offset": offset}
    return TraceEvent(**{name: given.get(name) for name in TraceEvent._fields})  # type: ignore[arg-type]


def test_traces() -> None:
    given = [
        event(2_000_001_500, EventKind.FSYNCED, 8),
        event(1_000_000_000, EventKind.APPENDED, 7),
    ]
    found = traces_table.rows(pa.Table.from_batches([to_batch(given)]))
    wanted = found.select(["time", "kind", "base_offset", "node"]).to_pylist()
    assert [tuple(row.values()) for row in wanted] == [
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "appended", 7, 1),
        (datetime(1970, 1, 1, 0, 0, 2, 1, tzinfo=UTC), "fsynced", 8, 1),
    ]


def test_audits(tmp_path: Path) -> None:
    verdict = {
        "ok": False,
        "anomalies": [
            {"name": "lost-write", "level": "fail", "count": 2, "examples": []},
            {"name": "stall", "level": "warn", "count": 1, "examples": []},
        ],
        "measures": {
            "sends": {"ok": 9, "info": 1},
            "records": 7,
            "partitions": {"t-0": {"missed": 2}, "t-1": {"missed": 0}},
        },
    }
    data = json.dumps({"run": verdict})
    page = f'<p>x</p><script type="application/json" id="verdict">{data}</script>'
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "report.html").write_text(page)
    (tmp_path / "other.html").write_text("<p>not ours</p>")
    (row,) = audits_table.rows(audits_table.read([tmp_path])).to_pylist()
    assert row.pop("report").endswith("deep/report.html")
    assert row.pop("written").year >= 2020
    assert tuple(row.values()) == ("run", False, 10, 9, 7, 2, ["lost-write: 2"])


def test_a_name_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadQuery, match="there are audits, brokers"):
        system_tables({"nodes"}, Places(None, ""))
    with pytest.raises(BadQuery, match="leave --cold out"):
        system_tables({"topics"}, Places(None, ""))


@pytest.mark.integration
def test_a_real_cluster_and_a_real_table(log: Log, tmp_path: Path) -> None:
    topic = log.topic(2)
    log.send(topic, numbered(0, 10), partition=1)
    settings = {"bootstrap.servers": log.bootstrap, "group.id": f"g-{topic}"}
    consumer = Consumer(QUIET | settings | {"auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    taken = 0
    while taken < 4:
        taken += len(consumer.consume(1, 1.0))
    consumer.commit(asynchronous=False)
    ingest_topic(Job(log.bootstrap, Warehouse(tmp_path), records_max=6), topic)
    found = system_tables(NAMES, Places(log.bootstrap, tmp_path, (tmp_path,)))
    consumer.close()

    def of(name: str, *columns: str) -> list[tuple[object, ...]]:
        rows = [row for row in found[name].to_pylist() if row.get("topic", topic) == topic]
        return [tuple(row[one] for one in columns) for row in rows]

    assert of("topics", "partitions", "offline", "internal") == [(2, 0, False)]
    assert of("offsets", "partition", "earliest", "latest", "high_watermark") == [
        (0, 0, 0, 0),
        (1, 0, 10, 10),
    ]
    lags = {row[1]: row for row in of("lag", "group", "partition", "committed", "lag")}
    assert lags[1] == (f"g-{topic}", 1, 4, 6)
    assert (f"g-{topic}", "Stable", 1, 6) in of("groups", "group", "state", "members", "lag")
    assert of("brokers", "controller").count((True,)) == 1
    assert of("snapshots", "added_rows", "rows", "current") == [(6, 6, False), (4, 10, True)]
    assert of("traces", "kind") == of("audits", "run") == []


@pytest.mark.integration
def test_snapshots_of_a_table(log: Log, tmp_path: Path) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 3))
    ingest_topic(Job(log.bootstrap, Warehouse(tmp_path)), topic)
    table = Warehouse(tmp_path).load(table_name(topic))
    assert table is not None
    (row,) = snapshots_table.rows([table]).to_pylist()
    (snapshot,) = table.snapshots()
    assert row.pop("committed") == datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
    assert row.pop("bytes") > 0
    wanted = (table_name(topic), topic, snapshot.snapshot_id, "append", 3, 3, 1, '{"0": 3}', True)
    assert tuple(row.values()) == wanted


@pytest.mark.integration
def test_the_command_answers_about_the_cluster(log: Log, tmp_path: Path) -> None:
    topic = log.topic(3)
    text = f"SELECT topic, partitions FROM chronik.topics WHERE topic = '{topic}'"
    options = ["-b", log.bootstrap, "-w", str(tmp_path), "--json", "--engine", "duckdb"]
    told = CliRunner().invoke(main, ["sql", text, *options])
    assert json.loads(told.stdout) == {"topic": topic, "partitions": 3}
