"""Counters, their export under Kafka's names, rates, and the watch on the event loop."""

import asyncio
import subprocess
import sys
import time
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from chronik.broker import exposition
from chronik.broker.clock import SystemClock
from chronik.broker.exposition import render
from chronik.broker.metrics import LATENCY_BOUNDS_US, Latency, Metrics, Stalls
from chronik.broker.status import HISTORY_SECONDS, History, PartitionStatus, Rates, Totals
from chronik.broker.watch import LoopWatch
from chronik.model.errors import ErrorCode
from chronik.model.limits import METRIC_CLIENTS_MAX

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def export(metrics: Metrics) -> Series:
    text = render(metrics, list(metrics.providers.partitions())).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def partition(index: int, leader: int = 1, in_sync: tuple[int, ...] = (1, 2)) -> PartitionStatus:
    return PartitionStatus("t", index, leader, 3, 5, 20 + index, 15, 4096, (1, 2), in_sync)


def test_topic_counters_have_kafkas_names() -> None:
    metrics = Metrics(1)
    metrics.topic("orders").produced(messages=10, size=700)
    metrics.topic("orders").produced(messages=1, size=70)
    metrics.topic("orders").fetched(size=500)
    found = export(metrics)
    prefix, label = "kafka_server_brokertopicmetrics_", (("topic", "orders"),)
    assert found[prefix + "messagesin_total", label] == 11
    assert found[prefix + "bytesin_total", label] == 770
    assert found[prefix + "bytesout_total", label] == 500
    assert found[prefix + "totalproducerequests_total", label] == 2


def test_a_deleted_topic_leaves_the_export() -> None:
    metrics = Metrics(1)
    metrics.topic("gone").fetched(1)
    metrics.forget_topic("gone")
    assert not [key for key in export(metrics) if ("topic", "gone") in key[1]]


def test_requests_are_counted_by_error_name_and_timed() -> None:
    metrics = Metrics(1)
    produce = metrics.api("Produce")
    assert metrics.api("Produce") is produce
    produce.answered(1_000)
    produce.answered(1_001, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    produce.answered(60_000_000, 31_000)
    found = export(metrics)
    name, request = "kafka_network_requestmetrics_", ("request", "Produce")
    for error in ("NONE", "NOT_LEADER_OR_FOLLOWER", "31000"):
        assert found[name + "requests_total", (("error", error), request)] == 1
    bucket = name + "totaltime_seconds_bucket"
    assert [found[bucket, (("le", le), request)] for le in ("0.0005", "0.001", "0.0025")] == [
        *(0, 1, 2)
    ]
    assert [found[bucket, (("le", le), request)] for le in ("30.0", "+Inf")] == [2, 3]
    assert found[name + "totaltime_seconds_count", (request,)] == 3
    assert found[name + "totaltime_seconds_sum", (request,)] == 60.002001


@given(st.lists(st.integers(0, 40_000_000)))
def test_a_histogram_counts_each_duration_in_the_first_bucket_that_holds_it(us: list[int]) -> None:
    latency = Latency()
    for duration in us:
        latency.observe_us(duration)
    assert latency.count == len(us)
    assert latency.sum_us == sum(us)
    for index, bound in enumerate(LATENCY_BOUNDS_US):
        assert sum(latency.buckets[: index + 1]) == sum(1 for one in us if one <= bound)
    assert bisect_left(LATENCY_BOUNDS_US, 100) == 0


def test_partitions_are_gauges_and_sums() -> None:
    metrics = Metrics(1)
    rows = [partition(0), partition(1, in_sync=(1,)), partition(2, leader=2), partition(3, -1)]
    metrics.providers.partitions = lambda: rows
    found = export(metrics)
    manager = "kafka_server_replicamanager_"
    names = ("partitioncount", "leadercount", "underreplicatedpartitions", "offlinereplicacount")
    assert [found[manager + name, ()] for name in names] == [4, 2, 1, 1]
    label = (("partition", "1"), ("topic", "t"))
    names = ("size", "logstartoffset", "logendoffset", "highwatermark")
    assert [found["kafka_log_log_" + name, label] for name in names] == [4096, 5, 21, 15]


def test_the_number_of_partition_series_is_bounded_and_the_rest_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exposition, "PARTITION_SERIES_MAX", 100)
    text = render(Metrics(1), [partition(index) for index in range(107)])
    assert text.count(b"kafka_log_log_size{") == 100
    assert b"chronik_partition_series_omitted 7.0" in text
    assert b"partitioncount 107.0" in text


def test_what_the_node_registers_is_exported() -> None:
    metrics = Metrics(1)
    metrics.providers.connections = lambda: 12
    metrics.providers.in_flight_bytes = lambda: 99
    metrics.providers.commit_disk_us = lambda: 2_500_000
    metrics.providers.trace_dropped = lambda: 4
    metrics.count_rejected("Produce", ErrorCode.MESSAGE_TOO_LARGE)
    metrics.count_forwarded("Fetch", "app")
    metrics.count_forwarded("Fetch", "app")
    metrics.count_not_leader("Produce", None)
    metrics.stalls.observe_us(70_000)
    found = export(metrics)
    assert found["kafka_server_socketservermetrics_connection_count", ()] == 12
    assert found["chronik_in_flight_bytes", ()] == 99
    assert found["chronik_group_commit_disk_seconds_total", ()] == 2.5
    assert found["chronik_trace_dropped_events_total", ()] == 4
    error = (("error", "MESSAGE_TOO_LARGE"), ("request", "Produce"))
    assert found["chronik_rejected_partitions_total", error] == 1
    assert found["chronik_forwarded_requests_total", (("client", "app"), ("request", "Fetch"))] == 2
    nameless = (("client", ""), ("request", "Produce"))
    assert found["chronik_not_leader_requests_total", nameless] == 1
    assert found["chronik_event_loop_stall_seconds_count", ()] == 1
    assert found["chronik_event_loop_stall_seconds_sum", ()] == 0.07


def test_client_names_cannot_fill_the_memory() -> None:
    metrics = Metrics(1)
    for number in range(3 * METRIC_CLIENTS_MAX):
        metrics.count_forwarded("Produce", f"client-{number}")
    assert len(metrics.forwarded.counts) <= METRIC_CLIENTS_MAX + 1
    assert metrics.forwarded.total("Produce") == 3 * METRIC_CLIENTS_MAX


def test_every_metric_has_help() -> None:
    metrics = Metrics(1)
    text = render(metrics, [partition(0)]).decode()
    families = [line for line in text.splitlines() if line.startswith("# TYPE")]
    helped = [line for line in text.splitlines() if line.startswith("# HELP")]
    assert len(families) == len(helped)
    assert all(len(line.split(" ", 3)) == 4 for line in helped)


def test_a_stall_is_a_pause_above_the_limit() -> None:
    stalls = Stalls(limit_us=50)
    for late_us in (10, 50, 51, 200, 20):
        stalls.observe_us(late_us)
    assert (stalls.count, stalls.max_us, stalls.sum_us) == (2, 200, 251)


def test_rates_are_averaged_over_the_last_seconds_and_history_is_bounded() -> None:
    history = History()
    assert history.now() == Rates()
    for second in range(HISTORY_SECONDS * 2):
        history.add(second * 1_000_000_000, Totals(messages_in=second * 100, requests=second))
    assert history.now() == Rates(messages_in=100.0, requests=1.0)
    assert len(history.curve()) == HISTORY_SECONDS


def test_totals_sum_topics_and_requests() -> None:
    metrics = Metrics(1)
    metrics.topic("a").produced(2, 20)
    metrics.topic("b").produced(3, 30)
    metrics.topic("b").fetched(7)
    metrics.api("Fetch").answered(1, 3)
    metrics.api("Fetch").answered(1)
    assert metrics.totals() == Totals(messages_in=5, bytes_in=50, bytes_out=7, requests=2)


def test_the_watch_sees_a_blocked_loop_and_leaves_nothing_behind() -> None:
    metrics = Metrics(1)

    async def scenario() -> int:
        watch = LoopWatch(asyncio.get_running_loop(), SystemClock(), metrics)
        watch.start()
        while not watch.history.curve() and not metrics.stalls.count:
            time.sleep(0.08)  # the block itself  # noqa: ASYNC251
            await asyncio.sleep(0.03)
        watch.stop()
        return metrics.stalls.count

    assert asyncio.run(scenario()) >= 1
    assert metrics.stalls.max_us > 50_000


def test_counters_load_no_prometheus_client() -> None:
    code = (
        "import sys; import chronik.broker.metrics; import chronik.net.http;"
        "assert 'prometheus_client' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
