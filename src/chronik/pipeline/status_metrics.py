"""The pipeline's status in Prometheus' text format, for a scrape or a textfile collector."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from chronik.pipeline.status import TableStatus

_OF_TABLE = {
    "chronik_pipeline_rows": "Rows of the table.",
    "chronik_pipeline_bad_records": "Rows of its dead letter table.",
    "chronik_pipeline_files": "Data files of the newest snapshot.",
    "chronik_pipeline_bytes": "Their size.",
    "chronik_pipeline_offsets_per_second": "How fast the newest commits followed.",
    "chronik_pipeline_last_commit_timestamp_seconds": "When records were committed last.",
}
_OF_PARTITION = {
    "chronik_pipeline_lag": "Offsets of the log that the table does not have yet.",
    "chronik_pipeline_next_offset": "The offset that is ingested next.",
    "chronik_pipeline_deleted_offsets": "Offsets that were deleted before they were ingested.",
}


def metrics_text(tables: Iterable[TableStatus]) -> str:
    """All tables; a value that is not known has no sample."""
    registry = CollectorRegistry()
    of_table = [Gauge(*one, ("table", "topic"), registry=registry) for one in _OF_TABLE.items()]
    names = ("table", "topic", "partition")
    of_partition = [Gauge(*one, names, registry=registry) for one in _OF_PARTITION.items()]
    for one in tables:
        committed_s = None if one.committed_ms is None else one.committed_ms / 1_000
        values = (one.rows, one.bad, one.files, one.bytes, one.offsets_per_s, committed_s)
        _set(of_table, (one.table, one.topic), values)
        for part in one.partitions:
            labels = (one.table, one.topic, str(part.partition))
            _set(of_partition, labels, (part.lag, part.table_end, part.deleted))
    return generate_latest(registry).decode()


def _set(gauges: Iterable[Gauge], labels: tuple[str, ...], values: Iterable[float | None]) -> None:
    for gauge, value in zip(gauges, values, strict=True):
        if value is not None:
            gauge.labels(*labels).set(value)
