"""`chronik pipeline ingest`: the job that moves topics into tables, exactly once.

A batch is planned from the table's own offsets, written by Spark tasks into files that nobody sees,
and becomes visible with its offsets in one commit. Whatever dies at whatever point, the next run
plans from what is committed; files of a dead attempt are in no snapshot.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from chronik.pipeline import dlq_table, json_columns, modes, partitioning, registry_rows
from chronik.pipeline.client import READ_COMMITTED, Cluster, TopicPartition
from chronik.pipeline.fetch import OffsetRange
from chronik.pipeline.ingest_metrics import Counters
from chronik.pipeline.letters import settle_bad
from chronik.pipeline.offsets import split, to_json
from chronik.pipeline.plan import IngestError, ends, left, plan
from chronik.pipeline.registry import Registry
from chronik.pipeline.session import session
from chronik.pipeline.tables import IngestTable, Tables
from chronik.pipeline.tasks import Counts, Outcome, Task, check_counts
from chronik.pipeline.warehouse import MODE, PARTITION_BY, REGISTRY, TOPIC, Warehouse, table_name

RECORDS_PER_COMMIT_MAX = 5_000_000
"""Bounds what a crash makes do again, and the size of the files."""


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
    gaps: int = 0
    """Offsets without a record: markers, aborted records, what compaction took."""
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


Tasks = Callable[[Callable[[OffsetRange], Outcome], Sequence[OffsetRange]], Iterable[Outcome]]


@dataclass
class Job:
    """Everything a run needs; `tasks` maps a function over ranges, on Spark's executors."""

    bootstrap: str
    warehouse: Tables
    mode: str = "raw"
    isolation: int = READ_COMMITTED
    records_max: int = RECORDS_PER_COMMIT_MAX
    tasks: Tasks = map
    parallelism: int = 1
    partition_by: tuple[partitioning.PartitionBy, ...] = ()
    registry: Registry | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Topic to table, where the table is not to have the topic's name."""
    modes: Mapping[str, str] = field(default_factory=dict)
    """Topic to mode, where it is not `mode`."""
    counters: Counters = field(default_factory=Counters)
    progress: Callable[[Progress], None] = lambda _: None


def ingest_once(  # noqa: PLR0913 - options with names
    bootstrap: str,
    topics: Iterable[str],
    warehouse: str | Path | Tables,
    master: str = "local[*]",
    progress: Callable[[Progress], None] | None = None,
    *,
    mode: str = "raw",
    records_per_commit: int = RECORDS_PER_COMMIT_MAX,
    spark: SparkSession | None = None,
    catalog: Mapping[str, str] | None = None,
) -> IngestResult:
    """Moves what the topics hold now into their tables."""
    spark = spark or session(master)
    job = spark_job(
        spark,
        bootstrap,
        Warehouse(warehouse, catalog) if isinstance(warehouse, str | Path) else warehouse,
        mode,
        records_max=records_per_commit,
        progress=progress or (lambda _: None),
    )
    return IngestResult([ingest_topic(job, topic) for topic in topics])


def ingest_forever(
    job: Job, topics: Sequence[str], interval_s: float, stop: Callable[[], bool] = lambda: False
) -> None:
    """Takes what is new, again and again: Spark's processing-time trigger.

    Rounds begin at least `interval_s` apart, so that a steady trickle of records does not become a
    commit each; a backlog is worked off within its round.
    """
    while not stop():
        begun = time.perf_counter()
        for topic in topics:
            ingest_topic(job, topic)
        time.sleep(max(0.0, begun + interval_s - time.perf_counter()))


def spark_job(
    spark: SparkSession,
    bootstrap: str,
    warehouse: Tables,
    mode: str = "raw",
    **settings: Any,
) -> Job:
    """A job whose tasks run on the session's executors; settings as the fields of `Job`."""
    return on_spark(spark, Job(bootstrap, warehouse, mode, **settings))


def on_spark(spark: SparkSession, job: Job) -> Job:
    """The same job with its tasks on the session's executors."""
    parallelism = spark.sparkContext.defaultParallelism
    return replace(job, tasks=spark_tasks(spark), parallelism=parallelism)


def spark_tasks(spark: SparkSession) -> Tasks:
    """One range is one Spark task; results come back, records do not."""

    def run(work: Callable[[OffsetRange], Outcome], ranges: Sequence[OffsetRange]) -> Any:
        return spark.sparkContext.parallelize(ranges, len(ranges)).map(work).collect()

    return run


def ingest_topic(job: Job, topic: str) -> TopicResult:
    """One topic up to the end that it has now, in as many commits as it takes."""
    begun = time.perf_counter()
    with Cluster(job.bootstrap) as cluster:
        target = ends(cluster, topic, job.isolation)
        table = open_table(job, topic)
        total = left(cluster, table.state(), topic, target)
    result = TopicResult(topic, table.name)
    job.counters.left(topic, target, table.state().next)
    done = 0
    for ranges in _batches(job, table, topic, target):
        counts = run_batch(job, table, topic, ranges)
        done += sum(one.end - one.start for one in ranges)
        result.rows, result.bad = result.rows + counts.rows, result.bad + counts.bad
        result.gaps += counts.gaps
        result.commits += 1
        state = table.state()
        job.counters.committed(topic, counts, state.committed_ms or 0)
        job.counters.left(topic, target, state.next)
        result.seconds = time.perf_counter() - begun
        job.progress(Progress(topic, done, total, result.rows, result.bad, result.seconds))
    result.next_offsets = table.state().next
    return result


def waiting(job: Job, topic: str) -> int:
    """Offsets that the topic's table lacks; raises where topic and table do not fit together.

    Needs no Spark, so that what cannot succeed is refused before one starts.
    """
    with Cluster(job.bootstrap) as cluster:
        target = ends(cluster, topic, job.isolation)
        return left(cluster, open_table(job, topic).state(), topic, target)


def _batches(
    job: Job, table: IngestTable, topic: str, target: Mapping[TopicPartition, int]
) -> Iterator[list[OffsetRange]]:
    """The ranges of one commit after the other, planned from what is committed."""
    with Cluster(job.bootstrap) as cluster:
        while ranges := plan(cluster, table.state(), topic, target, job.records_max):
            yield ranges


def open_table(job: Job, topic: str) -> IngestTable:
    """The topic's table, made if need be, its dead letters settled."""
    name = job.aliases.get(topic) or table_name(topic)
    mode = job.modes.get(topic, job.mode)
    properties = {TOPIC: topic, MODE: mode}
    if job.partition_by:
        properties[PARTITION_BY] = ";".join(map(str, job.partition_by))
    given = dict(properties)
    if job.registry is not None and mode in registry_rows.MODES:
        given[REGISTRY] = job.registry.place  # for SQL over the log; it may be another one later
    by = [(modes.place_column(mode, one.column), one) for one in job.partition_by]
    table = job.warehouse.open(name, modes.schema_of(mode), given, by)
    for told, wanted in properties.items():
        if table.properties.get(told) != wanted:
            raise IngestError(
                f"table '{name}' has {told}={table.properties.get(told)}, not {wanted}; "
                "an alias gives the topic another table"
            )
    settle_bad(job.warehouse, table)
    return table


# -- one batch


def run_batch(job: Job, table: IngestTable, topic: str, ranges: list[OffsetRange]) -> Counts:
    """Writes and commits the ranges."""
    batch_id = uuid.uuid4().hex
    outcomes = _write(job, table, ranges, batch_id)
    check_counts(ranges, outcomes)
    counts = Counts.of(outcomes)
    files = [one for outcome in outcomes for one in outcome.files]
    taken = {one.partition: (one.start, one.end) for one in ranges}
    bad_files = [one.path for one in files if one.bad]
    good_files = [one for one in files if not one.bad]
    table.commit(good_files, taken, batch_id, bad_files, counts.told())
    settle_bad(job.warehouse, table)
    return counts


def _write(job: Job, table: IngestTable, ranges: list[OffsetRange], batch_id: str) -> list[Outcome]:
    """Every task's files. Where tasks found new columns of different types, they run again."""
    folder, bad_folder = table.folders(batch_id, table.name + dlq_table.SUFFIX)
    by = partitioning.parse(table.properties.get(PARTITION_BY, ""))
    known = modes.columns_of(table)
    found: Mapping[str, pa.DataType] = {}
    while True:
        mode = modes.mode_of(table, {**known, **found}, job.registry)
        work = Task(job.bootstrap, folder, job.isolation, mode, by, bad_folder, table.access)
        outcomes: list[Outcome] = list(job.tasks(work, split(ranges, job.parallelism)))
        settled = dict(found)
        for one in outcomes:
            settled = json_columns.merged(settled, one.new)
        same = all(settled.get(name) == kind for one in outcomes for name, kind in one.new.items())
        if same and not any(one.widened for one in outcomes):
            table.add_columns(settled)
            return outcomes
        found = settled


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
