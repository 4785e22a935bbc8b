"""A listener's counts: rows against offsets, from given reports and from a real stream."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.kit import Log, numbered

from chronik.pipeline.stream_counters import BatchCount, StreamCounters, advanced, counts


def test_given_reports_expected_counts() -> None:
    source = {
        "startOffset": json.dumps({"t": {"0": 5, "1": 7}}),
        "endOffset": {"t": {"0": 8, "1": 7}},
        "latestOffset": {"t": {"0": 20, "1": 8}},
        "numInputRows": 4,
    }
    other = source | {"startOffset": {"logOffset": 1}, "endOffset": {"logOffset": 2}}
    (found,) = counts({"id": "q", "name": None, "batchId": 3, "sources": [other, source]})
    assert found == BatchCount("q", 3, 3, 4, 13)
    assert found.doubled == 1


def test_what_is_not_known_is_not_counted() -> None:
    assert advanced(None, {"t": {"0": 5}}) is None
    assert advanced({"t": {"0": 1}}, {"t": {"0": 5, "1": 2}}) is None
    assert BatchCount("q", 0, None, 9, None).doubled == 0


@pytest.mark.integration
@pytest.mark.spark
def test_every_batch_of_a_real_stream_has_a_row_per_offset(
    spark: Any, log: Log, tmp_path: Path
) -> None:
    topic = log.topic(2)
    log.send(topic, numbered(0, 60))
    seen = StreamCounters()
    spark.streams.addListener(seen)
    try:
        reader = spark.readStream.format("chronik").option("subscribe", topic)
        reader = reader.option("kafka.bootstrap.servers", log.bootstrap)
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "20")
        writer = reader.load().writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        writer.start().awaitTermination(120)
        spark._jsparkSession.sparkContext().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(seen)
    assert (seen.rows, seen.doubled) == (60, 0)
    assert len(seen.batches) >= 3
    assert all(one.offsets in {None, one.rows} for one in seen.batches)
