"""`chronik pipeline ingest`: the job that moves topics into tables, exactly once.

A batch is planned from the table's own offsets, written by Spark tasks into files that nobody sees,
and becomes visible with its offsets in one commit. Whatever dies at whatever point, the next run
plans from what is committed; files of a dead attempt are in no snapshot.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from chronik.pipeline import dlq_table, json_table, raw_table
from chronik.pipeline.client import EARLIEST, LATEST, READ_COMMITTED, Cluster, TopicPartition
from chronik.pipeline.fetch import DataLoss, OffsetRange
from chronik.pipeline.files import JudgedFiles, RawTask, Written, listed
from chronik.pipeline.offsets import split, to_json
from chronik.pipeline.session import session
from chronik.pipeline.warehouse import (
    BATCH,
    MODE,
    TOPIC,
    OffsetConflict,
    State,
    Warehouse,
    add_files,
    commit_records,
    properties_of,
    quiet,
    state_of,
    table_name,
)

Mode = Literal["raw", "json"]
RECORDS_PER_COMMIT_MAX = 5_000_000
"""Bounds what a crash makes do again, and the size of the files."""


class IngestError(Exception):
    """The topic and its table do not fit together."""


@dataclass(frozen=True)
class Progress:
    """Where a topic's ingest is, after each commit."""

    topic: str
    done: int
    """Offsets that this run has moved into the table."""
    total: int
    rows: int
    bad: int
    seconds: float


@dataclass
class TopicResult:
    """What one run did for one topic."""

    topic: str
    table: str
    rows: int = 0
    bad: int = 0
    commits: int = 0
    next_offsets: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass
class IngestResult:
    """What one run did."""

    topics: list[TopicResult]

    @property
    def rows(self) -> int:
        """Rows in all tables, bad ones not counted."""
        return sum(one.rows for one in self.topics)


@dataclass
class Job:
    """Everything a run needs; `tasks` maps a function over ranges, on Spark's executors."""

    bootstrap: str
    warehouse: Warehouse
    mode: Mode = "raw"
    isolation: int = READ_COMMITTED
    records_max: int = RECORDS_PER_COMMIT_MAX
    spark: SparkSession | None = None
    tasks: Callable[[Callable[[OffsetRange], list[Written]], Sequence[OffsetRange]], Any] = map
    parallelism: int = 1
    progress: Callable[[Progress], None] = lambda _: None


def ingest_once(  # noqa: PLR0913 - options with names
    bootstrap: str,
    topics: Iterable[str],
    warehouse: str | Path,
    master: str = "local[*]",
    progress: Callable[[Progress], None] | None = None,
    *,
    mode: Mode = "raw",
    records_per_commit: int = RECORDS_PER_COMMIT_MAX,
    spark: SparkSession | None = None,
    catalog: Mapping[str, str] | None = None,
) -> IngestResult:
    """Moves what the topics hold now into their tables."""
    spark = spark or session(master)
    job = spark_job(
        spark,
        bootstrap,
        Warehouse(warehouse, catalog),
        mode,
        records_max=records_per_commit,
        progress=progress or (lambda _: None),
    )
    return IngestResult([ingest_topic(job, topic) for topic in topics])


def ingest_forever(
    job: Job, topics: Sequence[str], interval_s: float, stop: Callable[[], bool] = lambda: False
) -> None:
    """Takes what is new, again and again; the pause is kept only where nothing was new."""
    while not stop():
        if not any(ingest_topic(job, topic).commits for topic in topics):
            time.sleep(interval_s)


def spark_job(
    spark: SparkSession,
    bootstrap: str,
    warehouse: Warehouse,
    mode: Mode = "raw",
    *,
    records_max: int = RECORDS_PER_COMMIT_MAX,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Job:
    """A job whose tasks run on the session's executors."""
    return Job(
        bootstrap,
        warehouse,
        mode,
        records_max=records_max,
        spark=spark,
        tasks=spark_tasks(spark),
        parallelism=spark.sparkContext.defaultParallelism,
        progress=progress,
    )


def spark_tasks(
    spark: SparkSession,
) -> Callable[[Callable[[OffsetRange], list[Written]], Sequence[OffsetRange]], Any]:
    """One range is one Spark task; results come back, records do not."""

    def run(work: Callable[[OffsetRange], list[Written]], ranges: Sequence[OffsetRange]) -> Any:
        return spark.sparkContext.parallelize(ranges, len(ranges)).map(work).collect()

    return run


def ingest_topic(job: Job, topic: str) -> TopicResult:
    """One topic up to the end that it has now, in as many commits as it takes."""
    begun = time.perf_counter()
    table = open_table(job, topic)
    with Cluster(job.bootstrap) as cluster:
        target = _ends(cluster, topic, job.isolation)
    result = TopicResult(topic, table.name()[-1])
    total = _left(state_of(table), target)
    done = 0
    for ranges in _batches(job, table, topic, target):
        rows, bad = run_batch(job, table, topic, ranges)
        done += sum(one.end - one.start for one in ranges)
        result.rows, result.bad = result.rows + rows, result.bad + bad
        result.commits += 1
        result.seconds = time.perf_counter() - begun
        job.progress(Progress(topic, done, total, result.rows, result.bad, result.seconds))
    result.next_offsets = state_of(table).next
    return result


def open_table(job: Job, topic: str) -> Table:
    """The topic's table, made if need be, its dead letters settled."""
    schema = raw_table.ARROW if job.mode == "raw" else json_table.ARROW_PLACE
    properties = {TOPIC: topic, MODE: job.mode}
    table = job.warehouse.create(table_name(topic), schema, properties)
    for name, wanted in properties.items():
        if table.properties.get(name) != wanted:
            raise IngestError(
                f"table '{table_name(topic)}' has {name}={table.properties.get(name)}, not {wanted}"
            )
    settle_bad(job.warehouse, table)
    return table


# -- planning


def _ends(cluster: Cluster, topic: str, isolation: int) -> dict[TopicPartition, int]:
    partitions = cluster.partitions([topic])
    return cluster.offsets(dict.fromkeys(partitions, LATEST), isolation)


def _left(state: State, target: Mapping[TopicPartition, int]) -> int:
    return sum(max(0, end - state.next.get(one[1], 0)) for one, end in target.items())


def _batches(
    job: Job, table: Table, topic: str, target: Mapping[TopicPartition, int]
) -> Iterator[list[OffsetRange]]:
    """The ranges of one commit after the other, planned from what is committed."""
    with Cluster(job.bootstrap) as cluster:
        while ranges := plan(cluster, state_of(table), topic, target, job.records_max):
            yield ranges


def plan(
    cluster: Cluster,
    state: State,
    topic: str,
    target: Mapping[TopicPartition, int],
    records_max: int,
) -> list[OffsetRange]:
    """At most about `records_max` offsets, a fair share of each partition that has more.

    A partition that is still empty is in the first plan too, with an empty range: from then on a
    record of it that is deleted before it was ingested is noticed.
    """
    starts = cluster.offsets(dict.fromkeys(target, EARLIEST))
    ranges = []
    for (_, partition), end in sorted(target.items()):
        start = state.next.get(partition, starts[topic, partition])
        _check_log(topic, partition, start, starts[topic, partition], end)
        ranges.append(OffsetRange(topic, partition, start, end))
    busy = [one for one in ranges if one.end > one.start]
    if not busy:
        return []
    share = max(1, records_max // len(busy))
    return [
        OffsetRange(topic, one.partition, one.start, min(one.end, one.start + share))
        for one in ranges
        if one.end > one.start or one.partition not in state.next
    ]


def _check_log(topic: str, partition: int, start: int, log_start: int, end: int) -> None:
    if start < log_start:
        raise DataLoss(
            f"{topic}-{partition}: the table ends at offset {start}, the log begins at {log_start}:"
            " records were deleted before they were ingested"
        )
    if start > end:
        raise IngestError(
            f"{topic}-{partition}: the table ends at offset {start}, the log already at {end}. "
            "The topic was made again, or it lost records; an offset is never taken back"
        )


# -- one batch


def run_batch(job: Job, table: Table, topic: str, ranges: list[OffsetRange]) -> tuple[int, int]:
    """Writes and commits the ranges; returns the rows, good and bad."""
    batch_id = uuid.uuid4().hex
    folder = f"{table.location()}/data/{batch_id}"
    if job.mode == "raw":
        work = RawTask(job.bootstrap, folder, job.isolation)
        written = [one for many in job.tasks(work, split(ranges, job.parallelism)) for one in many]
    else:
        written = _write_json(job, table, ranges, folder)
    good, bad = ([one for one in written if one.bad is kind] for kind in (False, True))
    taken = {one.partition: (one.start, one.end) for one in ranges}
    commit_records(table, [one.path for one in good], taken, batch_id, [one.path for one in bad])
    settle_bad(job.warehouse, table)
    return sum(one.rows for one in good), sum(one.rows for one in bad)


def _write_json(job: Job, table: Table, ranges: list[OffsetRange], folder: str) -> list[Written]:
    assert job.spark is not None, "JSON is parsed by Spark"
    records = read_ranges(job, ranges)
    known = json_table.fields_in(table.schema().as_arrow())
    fields = json_table.merged(known, json_table.inferred(records))
    if fields != known:
        with quiet(), table.update_schema() as update:
            update.union_by_name(json_table.arrow_schema(fields))
    judged = json_table.judged(records, fields)
    both = judged.select(
        F.struct(*json_table.columns(fields)).alias("good"),
        F.struct(*dlq_table.COLUMNS).alias("bad"),
    )
    job.spark.dataSource.register(JudgedFiles)
    both.write.format(JudgedFiles.FORMAT).option("folder", folder).mode("append").save()
    return listed(folder)


def read_ranges(job: Job, ranges: Sequence[OffsetRange]) -> DataFrame:
    """The records of the ranges as a DataFrame."""
    assert job.spark is not None
    return log_records(
        job.spark,
        job.bootstrap,
        {(one.topic, one.partition): (one.start, one.end) for one in ranges},
        parallelism=job.parallelism,
    )


def log_records(
    spark: SparkSession,
    bootstrap: str,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    *,
    parallelism: int = 1,
) -> DataFrame:
    """Records of the log between offsets, committed ones only."""
    parts: dict[str, list[int]] = {}
    for topic, partition in ranges:
        parts.setdefault(topic, []).append(partition)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.isolation.level": "read_committed",
        "assign": json.dumps(parts),
        "startingOffsets": json.dumps(to_json({one: r[0] for one, r in ranges.items()})),
        "endingOffsets": json.dumps(to_json({one: r[1] for one, r in ranges.items()})),
        "minPartitions": str(parallelism),
        "includeHeaders": "true",
    }
    return spark.read.format("chronik").options(**options).load()


# -- dead letters


def settle_bad(warehouse: Warehouse, table: Table) -> None:
    """Adds the bad files that the table's last commit names to the dead letter table, once.

    The table's commit is the intent; this completes it, now or after a crash.
    """
    state = state_of(table)
    if not state.bad_files:
        return
    properties = {TOPIC: table.properties[TOPIC], MODE: "dlq"}
    name = table.name()[-1] + dlq_table.SUFFIX
    letters = warehouse.create(name, dlq_table.ARROW, properties)

    def told(fresh: Table) -> dict[str, str]:
        if _holds(fresh, state.batch_id):
            raise OffsetConflict("the dead letters are already there")
        return {BATCH: state.batch_id}

    if not _holds(letters, state.batch_id):
        try:
            add_files(letters, state.bad_files, told)
        except OffsetConflict:
            return


def _holds(letters: Table, batch_id: str) -> bool:
    return any(properties_of(one).get(BATCH) == batch_id for one in letters.snapshots())
