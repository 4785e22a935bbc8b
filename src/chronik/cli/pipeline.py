"""`chronik pipeline`: topics become tables, exactly once."""

import datetime
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from chronik.cli._client import require_reachable
from chronik.cli._options import bootstrap_option, topic_name
from chronik.cli._output import count_text, note, print_table
from chronik.cli._pipeline import (
    catalog_option,
    format_option,
    master_option,
    pairs,
    pipeline_command,
    registry_options,
    require_format,
    tables_of,
    tell_of_delta,
    tell_of_nothing,
    warehouse_option,
)
from chronik.cli._pipeline_checks import require_master, require_topics, serve_metrics
from chronik.cli.pipeline_status import command as status_command

if TYPE_CHECKING:
    from chronik.pipeline.ingest import Progress, TopicResult
    from chronik.pipeline.maintenance import Cared
    from chronik.pipeline.proof import Verdict
    from chronik.pipeline.tables import Tables


@click.group("pipeline")
def command() -> None:
    """Topics become Iceberg or Delta tables, exactly once, on Spark."""


@command.command("ingest")
@click.argument("topics", nargs=-1, required=True, callback=topic_name)
@click.option("--once", is_flag=True, help="End at what was the topics' end when it began.")
@click.option(
    "--mode",
    type=click.Choice(["raw", "json", "avro", "protobuf"]),
    default="raw",
    show_default=True,
    help="raw: key and value as bytes. json: a typed column per field. avro, protobuf: the "
    "same, with the schemas of a registry.",
)
@click.option(
    "--topic-mode",
    "modes",
    multiple=True,
    metavar="TOPIC=MODE",
    callback=pairs,
    help="Another mode for one of the topics.",
)
@registry_options
@click.option(
    "--partition-by",
    default="",
    metavar="TRANSFORM",
    help="Of a new table: day(timestamp), hour(timestamp) or bucket(16,key); "
    "several with a semicolon.",
)
@click.option(
    "--alias",
    "aliases",
    multiple=True,
    metavar="TOPIC=TABLE",
    callback=pairs,
    help="The table's name; by default the topic's with _ for dots and dashes.",
)
@click.option("--metrics-port", type=click.IntRange(0, 65_535), help="Prometheus on this port.")
@click.option("--records-per-commit", type=click.IntRange(1), default=5_000_000, show_default=True)
@click.option(
    "--interval",
    type=click.FloatRange(0.05),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Looks for new records, and commits them, at most so often.",
)
@click.option("--prove", "proving", is_flag=True, help="Compare table and log at the end.")
@format_option
@catalog_option
@warehouse_option
@master_option
@bootstrap_option
@pipeline_command
def ingest(
    topics: tuple[str, ...],
    once: bool,
    interval: float,
    proving: bool,
    metrics_port: int | None,
    table_format: str,
    catalog: dict[str, str],
    warehouse: str,
    master: str,
    bootstrap: str,
    **options: Any,
) -> None:
    """Move the records of TOPICS into tables of the warehouse.

    It goes on from the offsets that the tables hold, and can be stopped and killed at any time.

    \b
    chronik pipeline ingest orders --once --mode json
    chronik pipeline ingest orders payments --warehouse /data/warehouse --prove --once
    chronik pipeline ingest shop.orders --alias shop.orders=orders --partition-by 'day(timestamp)'
    chronik pipeline ingest orders --mode avro --registry http://localhost:8081 --once
    chronik pipeline ingest orders audit --mode json --topic-mode audit=raw --once
    chronik pipeline ingest orders --format delta --once
    """
    from chronik.pipeline.ingest import Job, ingest_forever, ingest_topic, on_spark, waiting
    from chronik.pipeline.session import require_java, session

    if proving and not once:
        raise click.UsageError("--prove needs an end: add --once")
    require_format(table_format, catalog, options["partition_by"])
    settings = _job_settings(topics, **options)
    require_master(master)
    require_java()
    require_reachable(bootstrap)
    require_topics(bootstrap, topics)
    place = tables_of(table_format, warehouse, catalog)
    job = Job(bootstrap, place, progress=_show_progress, **settings)
    left = sum(waiting(job, topic) for topic in topics)
    if metrics_port is not None:
        serve_metrics(job.counters, metrics_port)
    if left or not once:
        note(f"Starting Spark ({master}) ...")
        job = on_spark(session(master), job)
    if not once:
        note(f"Watching {', '.join(topics)}; Ctrl-C ends it, nothing gets lost.")
        ingest_forever(job, topics, interval)
        return
    for topic in topics:
        _show_result(ingest_topic(job, topic), warehouse)
    if proving:
        _prove(bootstrap, topics, place)


def _job_settings(
    topics: tuple[str, ...],
    mode: str,
    modes: dict[str, str],
    registry: str | None,
    registry_config: dict[str, str],
    partition_by: str,
    aliases: dict[str, str],
    records_per_commit: int,
) -> dict[str, Any]:
    """The options that make a job, validated before anything opens."""
    from chronik.pipeline import avro_table, protobuf_schema
    from chronik.pipeline.modes import MODES
    from chronik.pipeline.partitioning import BadPartitioning, parse
    from chronik.pipeline.registry import Registry

    _check_names(topics, {"--topic-mode": modes, "--alias": aliases})
    used = {modes.get(topic, mode) for topic in topics}
    if unknown := used - set(MODES):
        raise click.BadParameter(
            f"'{min(unknown)}' is no mode: {', '.join(MODES)}", param_hint="--topic-mode"
        )
    if bool(used & {"avro", "protobuf"}) != (registry is not None):
        raise click.UsageError("--mode avro or protobuf and --registry go together")
    if "protobuf" in used:
        protobuf_schema.require()
    if "avro" in used:
        avro_table.fastavro()
    try:
        by = parse(partition_by)
    except BadPartitioning as error:
        raise click.BadParameter(str(error), param_hint="--partition-by") from error
    schemas = None if registry is None else Registry(registry, registry_config)
    if schemas is not None:
        schemas.require()
    return {
        "mode": mode,
        "modes": modes,
        "registry": schemas,
        "partition_by": by,
        "aliases": aliases,
        "records_max": records_per_commit,
    }


def _check_names(topics: tuple[str, ...], given: dict[str, dict[str, str]]) -> None:
    """An option about a topic that is not ingested is a mistake."""
    for option, of_topics in given.items():
        for topic in of_topics:
            if topic not in topics:
                raise click.BadParameter(
                    f"'{topic}' is none of the topics: {', '.join(topics)}", param_hint=option
                )


def _show_progress(progress: "Progress") -> None:
    share = 100 * progress.done / progress.total if progress.total else 100.0
    rate = progress.rows / progress.seconds if progress.seconds else 0
    note(
        f"{progress.topic}: {progress.done:,} of {progress.total:,} offsets ({share:.0f}%), "
        f"{rate:,.0f} records/s"
    )


def _show_result(result: "TopicResult", warehouse: str) -> None:
    bad = f", {count_text(result.bad, 'bad record')} in {result.table}__dlq" if result.bad else ""
    click.echo(
        f"{result.topic}: {count_text(result.rows, 'row')} in "
        f"{count_text(result.commits, 'commit')}{bad}; table '{result.table}' in {warehouse}"
    )


def _prove(bootstrap: str, topics: tuple[str, ...], warehouse: "Tables") -> None:
    from chronik.pipeline.proof import prove

    note("Comparing tables and log ...")
    verdicts = [prove(bootstrap, topic, warehouse) for topic in topics]
    for verdict in verdicts:
        _show_verdict(verdict)
    if not all(verdict.ok for verdict in verdicts):
        sys.exit(1)


def _show_verdict(verdict: "Verdict") -> None:
    click.echo(verdict.text())
    for line in verdict.problems:
        click.echo(f"  {line}")
    for one in verdict.partitions:
        for line in one.examples:
            click.echo(f"  {line}")


@command.command("prove")
@click.argument("topics", nargs=-1, required=True, callback=topic_name)
@click.option(
    "--ledger",
    type=click.Path(exists=True, dir_okay=False),
    help="A parquet file of what producers were told (columns topic, partition, offset, outcome).",
)
@format_option
@catalog_option
@warehouse_option
@master_option
@bootstrap_option
@pipeline_command
def prove_command(
    topics: tuple[str, ...],
    ledger: str | None,
    table_format: str,
    catalog: dict[str, str],
    warehouse: str,
    master: str,
    bootstrap: str,
) -> None:
    """Compare tables with the log, record by record; ends with 1 where they differ."""
    from chronik.pipeline.proof import prove
    from chronik.pipeline.session import require_java

    require_format(table_format, catalog)
    require_master(master)
    require_java()
    require_reachable(bootstrap)
    require_topics(bootstrap, topics)
    place = tables_of(table_format, warehouse, catalog)
    verdicts = [prove(bootstrap, one, place, ledger, master=master) for one in topics]
    for verdict in verdicts:
        _show_verdict(verdict)
    sys.exit(0 if all(verdict.ok for verdict in verdicts) else 1)


command.add_command(status_command)


@command.command("maintain")
@click.option("--snapshot-days", type=click.FloatRange(0), default=5.0, show_default=True)
@click.option("--orphan-hours", type=click.FloatRange(1), default=24.0, show_default=True)
@catalog_option
@warehouse_option
@pipeline_command
def maintain_command(
    snapshot_days: float, orphan_hours: float, catalog: dict[str, str], warehouse: str
) -> None:
    """Join small files, expire old snapshots, delete files of dead runs; ingest may go on.

    Delta: versions are forgotten by the table's delta.logRetentionDuration, and files are deleted
    by the longer of the two ages.
    """
    ages = {
        "snapshot_age": datetime.timedelta(days=snapshot_days),
        "orphan_age": datetime.timedelta(hours=orphan_hours),
    }
    done = [*_maintain_iceberg(warehouse, catalog, ages), *_maintain_delta(warehouse, ages)]
    if done:
        rows = [(one.table, one.compacted, one.expired, one.deleted) for one in done]
        columns = ("table", "files joined", "snapshots expired", "files deleted")
        print_table(columns, rows, numbers=columns[1:])
    else:
        tell_of_nothing(warehouse)
    tell_of_delta(warehouse)


def _maintain_iceberg(
    warehouse: str, catalog: dict[str, str], ages: dict[str, datetime.timedelta]
) -> "list[Cared]":
    from chronik.pipeline.maintenance import maintain
    from chronik.pipeline.stored_tables import opened
    from chronik.pipeline.warehouse import Warehouse

    place = Warehouse(warehouse, catalog) if catalog else opened(warehouse)
    now = datetime.datetime.now(datetime.UTC)
    names = [] if place is None else sorted(place.topics().values())
    return [maintain(place, name, now, **ages) for name in names if place is not None]


def _maintain_delta(warehouse: str, ages: dict[str, datetime.timedelta]) -> "list[Cared]":
    from chronik.pipeline.delta_names import delta_names

    if not delta_names(warehouse) or find_spec("deltalake") is None:
        return []
    from chronik.pipeline.delta_care import maintain
    from chronik.pipeline.delta_table import DeltaWarehouse

    place = DeltaWarehouse(warehouse)
    return [maintain(place, name, **ages) for name in sorted(place.topics().values())]
