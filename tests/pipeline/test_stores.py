"""Catalogs and stores that are servers: the same pipeline, end to end, by options alone.

S3 and Glue are moto's (another implementation, on loopback, over HTTP), the REST catalog is
Iceberg's own servlet. Neither is AWS: what only AWS does (Glue's check of a table's version at the
very moment of the update, credentials of roles) is not shown here.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.pipeline.conftest import java_is_missing
from tests.pipeline.kit import Log, rows_in
from tests.pipeline.rest_catalog import JARS, RestCatalog

from chronik.cli import main
from chronik.pipeline import sql, sql_duckdb
from chronik.pipeline.catalogs import WarehouseError
from chronik.pipeline.client import Cluster
from chronik.pipeline.fetch import OffsetRange
from chronik.pipeline.ingest import Job, ingest_once, ingest_topic, open_table, run_batch
from chronik.pipeline.maintenance import maintain
from chronik.pipeline.plan import ends
from chronik.pipeline.proof import prove
from chronik.pipeline.stored_tables import opened
from chronik.pipeline.warehouse import OffsetConflict, Warehouse, table_name

pytestmark = pytest.mark.integration
REGION = "eu-central-1"
KEY, SECRET = "tester", "of-no-value"
PICKLED = "gASV"
"""How a pickle of some length begins in base64: no plan may show one, it has secrets inside."""
NUMBERS = count()
KINDS = ["sqlite and S3", "Glue and S3", "REST and a folder", "REST and S3"]


@dataclass
class Store:
    """A warehouse as its user names it."""

    location: str
    catalog: dict[str, str]

    def open(self) -> Warehouse:
        return Warehouse(self.location, self.catalog)

    @property
    def options(self) -> list[str]:
        given = [f"--catalog={name}={value}" for name, value in self.catalog.items()]
        return ["--warehouse", self.location, *given]


@pytest.fixture(scope="module")
def aws() -> Iterator[str]:
    """S3 and Glue on a free port; one bucket."""
    sys.path.append(str(JARS.parent / "moto"))
    servers = pytest.importorskip("moto.server", reason="moto is not here: make peers")
    boto3 = pytest.importorskip("boto3")
    running = servers.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    url = f"http://{host}:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )
    client.create_bucket(Bucket="lake", CreateBucketConfiguration={"LocationConstraint": REGION})
    client.close()
    yield url
    running.stop()


def s3(url: str) -> dict[str, str]:
    return {
        "s3.endpoint": url,
        "s3.region": REGION,
        "s3.access-key-id": KEY,
        "s3.secret-access-key": SECRET,
    }


def glue(url: str) -> dict[str, str]:
    return {
        "type": "glue",
        "glue.endpoint": url,
        "glue.region": REGION,
        "glue.access-key-id": KEY,
        "glue.secret-access-key": SECRET,
    }


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    catalog, _, where = request.param.partition(" and ")
    access = s3(request.getfixturevalue("aws")) if where == "S3" else {}
    location = f"s3://lake/{next(NUMBERS)}" if where == "S3" else f"file://{tmp_path}/tables"
    if catalog == "sqlite":
        yield Store(location, {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db"} | access)
    elif catalog == "Glue":
        yield Store(location, glue(access["s3.endpoint"]) | access)
    else:
        if not any(JARS.glob("*.jar")) or java_is_missing():
            pytest.skip("no REST catalog: bench/iceberg-rest.sh fetches it, and it needs Java 17")
        server = RestCatalog(location)
        yield Store(location, {"type": "rest", "uri": server.url} | access)
        server.stop()


@pytest.fixture
def topic(log: Log) -> str:
    """101 records, one of them bad."""
    name = log.topic(2, name=f"store.{next(NUMBERS)}-{id(log)}")
    send(log, name, range(100))
    log.send(name, [(None, b"bad")], partition=1)
    return name


def send(log: Log, topic: str, ids: range) -> None:
    for partition in (0, 1):
        values = [json.dumps({"id": n}).encode() for n in ids if n % 2 == partition]
        log.send(topic, [(b"k", one) for one in values], partition=partition)


def test_a_topic_becomes_a_table_is_asked_and_cared_for(log: Log, store: Store, topic: str) -> None:
    place = store.open()
    result = ingest_topic(Job(log.bootstrap, place, "json", records_max=30), topic)
    assert (result.rows, result.bad, result.commits) == (100, 1, 4)
    send(log, topic, range(100, 110))
    name = table_name(topic)

    def counts() -> Any:
        good = f"SELECT count(*), sum(id) FROM {name}"
        bad = f"SELECT count(*), max(value) FROM {name}__dlq"
        return [rows_in(sql_duckdb.query(log.bootstrap, place, one)) for one in (good, bad)]

    before = counts()
    assert before == [[(110, sum(range(110)))], [(1, b"bad")]]
    later = datetime.now(UTC) + timedelta(days=2)
    cared = maintain(place, name, later, snapshot_age=timedelta(0))
    assert cared.compacted > 1
    assert cared.deleted == cared.compacted  # those that were joined are in no snapshot now
    assert counts() == before
    ingest_topic(Job(log.bootstrap, place, "json"), topic)
    assert counts() == before


def test_the_commands_take_the_store_by_their_options(log: Log, store: Store, topic: str) -> None:
    ingest_topic(Job(log.bootstrap, store.open(), "json", records_max=60), topic)
    send(log, topic, range(100, 110))
    name = table_name(topic)

    def told(*command: str) -> list[str]:
        done = CliRunner().invoke(main, [*command, *store.options])
        assert done.exit_code == 0, done.output
        return done.stdout.splitlines()

    status = told("pipeline", "status", "-b", log.bootstrap)
    ends_and_lags = [line.split()[2:5] for line in status if line.startswith(name)]
    assert ends_and_lags[:2] == [["50", "55", "5"], ["51", "56", "5"]]
    query = f"SELECT count(*) AS n FROM {name}"
    assert told("sql", query, "-b", log.bootstrap, "--json") == ['{"n": 110}']
    assert told("sql", query, "--cold", "--json") == ['{"n": 100}']
    assert any(line.startswith(name) for line in told("pipeline", "maintain"))


@pytest.mark.spark
def test_sparks_tasks_write_and_read_there_and_the_proof_finds_what_is_missing(
    spark: Any, log: Log, store: Store, topic: str
) -> None:
    place = store.open()
    ingest_once(log.bootstrap, [topic], place, mode="json", spark=spark, records_per_commit=60)
    send(log, topic, range(100, 110))
    asked = f"SELECT count(*), sum(id) FROM {table_name(topic)}"
    answer = sql.query(spark, log.bootstrap, place, asked)
    assert [tuple(row) for row in answer.collect()] == [(110, sum(range(110)))]
    shown = answer._jdf.queryExecution().toString()
    assert PICKLED not in shown
    verdict = prove(log.bootstrap, topic, place, spark=spark)
    assert (verdict.ok, verdict.total("table_rows"), verdict.total("behind")) == (True, 101, 10)
    table = place.of_topic(topic)
    assert table is not None
    victim = next(iter(table.scan().plan_files())).file
    with (
        table.transaction() as transaction,
        transaction.update_snapshot().overwrite() as overwrite,
    ):
        overwrite.delete_data_file(victim)
    verdict = prove(log.bootstrap, topic, place, spark=spark)
    assert (verdict.ok, verdict.total("lost")) == (False, victim.record_count)


def test_of_two_ingesters_from_the_same_offset_one_wins(log: Log, store: Store, topic: str) -> None:
    jobs = [Job(log.bootstrap, store.open(), "json") for _ in range(2)]
    tables = [open_table(job, topic) for job in jobs]
    with Cluster(log.bootstrap) as cluster:
        target = ends(cluster, topic, jobs[0].isolation)
    ranges = [OffsetRange(*one, 0, end) for one, end in sorted(target.items())]
    run_batch(jobs[0], tables[0], topic, ranges)
    with pytest.raises(OffsetConflict):
        run_batch(jobs[1], tables[1], topic, ranges)
    text = f"SELECT count(*), count(DISTINCT id) FROM {table_name(topic)}"
    assert rows_in(sql_duckdb.query(None, store.open(), text)) == [(100, 100)]


@pytest.mark.parametrize("store", [one for one in KINDS if "Glue" not in one], indirect=True)
def test_two_ingesters_at_once_double_nothing(log: Log, store: Store, topic: str) -> None:
    """Not with moto's Glue, which does not look at the version that an update names."""

    def ingest(number: int) -> None:
        job = Job(log.bootstrap, store.open(), "json", records_max=10 + number)
        with contextlib.suppress(OffsetConflict):
            ingest_topic(job, topic)

    ingest_topic(Job(log.bootstrap, store.open(), "json", records_max=1_000), topic)
    send(log, topic, range(100, 200))
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(ingest, range(2)))
    ingest(0)
    text = f"SELECT count(*), count(DISTINCT id) FROM {table_name(topic)}"
    assert rows_in(sql_duckdb.query(None, store.open(), text)) == [(200, 200)]


def test_everything_may_be_in_pyicebergs_own_configuration(log: Log, aws: str, topic: str) -> None:
    place = f"s3://lake/{next(NUMBERS)}"
    with pytest.raises(WarehouseError, match="--catalog"):
        opened(place)
    catalog = glue(aws) | s3(aws)
    ingest_topic(Job(log.bootstrap, Warehouse(place, catalog), "json"), topic)
    spelled = {name.upper().replace(".", "__").replace("-", "_"): catalog[name] for name in catalog}
    configured = {f"PYICEBERG_CATALOG__CHRONIK__{name}": value for name, value in spelled.items()}
    query = f"SELECT count(*) AS n FROM {table_name(topic)}"
    # pyiceberg looks at the environment when it is loaded, so that takes a process of its own.
    told = subprocess.run(
        [sys.executable, "-m", "chronik", "sql", query, "--cold", "--json", "--warehouse", place],
        env={**os.environ, **configured, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.stdout == '{"n": 100}\n', told.stderr


def test_the_stores_credentials_may_be_in_the_environment(
    log: Log, aws: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db"}
    catalog |= {"s3.endpoint": aws, "s3.region": REGION}
    place = Warehouse(f"s3://lake/{next(NUMBERS)}", catalog)
    assert ingest_topic(Job(log.bootstrap, place, "json"), topic).rows == 100
    query = f"SELECT count(*) FROM {table_name(topic)}"
    assert rows_in(sql_duckdb.query(None, place, query)) == [(100,)]


def test_a_wrong_address_is_told_in_a_line(tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db"} | s3("http://127.0.0.1:9")
    store = Store("s3://lake/nowhere", catalog)
    store.open()
    told = CliRunner().invoke(main, ["pipeline", "status", "--cold", *store.options])
    assert told.exit_code == 0
    away = Store("s3://lake/nowhere", {"type": "rest", "uri": "http://127.0.0.1:9"})
    told = CliRunner().invoke(main, ["pipeline", "status", "--cold", *away.options])
    assert told.exit_code == 1
    assert "Traceback" not in told.output
    assert "127.0.0.1:9" in told.output
