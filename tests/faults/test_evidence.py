"""The trace events of produces and fetches: every kind, every column, in order."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.faults.nodes import Client, FaultyFiles, fetch_request, node_on, run

from chronik.model.errors import ErrorCode
from chronik.trace.events import EventKind, TraceEvent

pytestmark = pytest.mark.integration

Story = list[tuple[str, dict[str, Any]]]
NO_PRODUCER = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}


def told(events: list[TraceEvent]) -> Story:
    """Kind and columns of each event, but for its clocks and who asked."""
    times = [event.mono_ns for event in events]
    assert times == sorted(times)
    story = []
    for event in events:
        shown = {name: value for name, value in event._asdict().items() if value is not None}
        assert (shown.pop("node"), shown.pop("topic"), shown.pop("partition")) == (1, "t", 1)
        assert shown.pop("time_ns") > 10**18, "the wall clock"
        assert shown.pop("mono_ns") < 10**18
        kind = EventKind(shown.pop("kind"))
        if kind in {EventKind.RECEIVED, EventKind.ACKED, EventKind.REJECTED} or kind >= 20:
            assert shown.pop("client_id") == "test"
            assert shown.pop("connection_id") > 1023
            assert shown.pop("correlation_id") > 0
        if kind >= EventKind.FETCH_START or kind in {EventKind.ACKED, EventKind.FSYNCED}:
            assert shown.pop("duration_us") >= 0
        story.append((kind.name, shown))
    return story


def produced(base: int, count: int, size: int) -> Story:
    end = base + count
    log = {"base_offset": base, "last_offset": end - 1}
    counted = {"record_count": count, "bytes": size, "high_watermark": base, "log_end": end}
    return [
        ("RECEIVED", {"bytes": size, "acks": -1}),
        ("APPENDED", {"leader_epoch": 0, **log, **counted, **NO_PRODUCER}),
        ("FSYNCED", {"leader_epoch": 0, "log_end": end, "detail": "fsync"}),
        ("WATERMARK", {"leader_epoch": 0, "high_watermark": end, "log_end": end}),
        ("ACKED", {**log, "acks": -1, "error_code": 0}),
    ]


def started(offset: int, wait_ms: int = 0) -> Story:
    asked = f"min_bytes=1 max_wait_ms={wait_ms}"
    return [("FETCH_START", {"base_offset": offset, "detail": asked})]


def looked(offset: int, end: int) -> Story:
    return [("FETCH_WATERMARK", {"base_offset": offset, "high_watermark": end, "log_end": end})]


def served(offset: int, end: int, size: int) -> Story:
    found = {"base_offset": offset, "bytes": size}
    return [
        ("FETCH_DATA", {**found, "high_watermark": end, "log_end": end}),
        ("FETCH_SERVED", found),
    ]


def empty(offset: int) -> Story:
    return [("FETCH_EMPTY", {"base_offset": offset, "bytes": 0})]


class Told:
    """What a node has told since the last question."""

    def __init__(self, events: Any) -> None:
        self._events = events
        self._seen = len(events())

    def news(self) -> list[TraceEvent]:
        events: list[TraceEvent] = self._events()[self._seen :]
        self._seen += len(events)
        return events


def scenario(tmp_path: Path, test: Any) -> None:
    async def on_a_node() -> None:
        async with node_on(FaultyFiles(), str(tmp_path), trace="memory") as node:
            client, other = await Client.connect(node.port), await Client.connect(node.port)
            await client.create("t", 2)
            await test(Told(node.broker.tracer.events), client, other)
            await client.close()
            await other.close()

    run(on_a_node)


def test_a_produce_tells_each_step(tmp_path: Path) -> None:
    async def test(seen: Told, client: Client, _: Client) -> None:
        for base in (0, 2):
            await client.produce("t", b"one", b"two", partition=1)
            events = seen.news()
            assert told(events) == produced(base, 2, 81)
            received, *_rest, acked = events
            assert acked.duration_us is not None
            assert acked.duration_us * 1000 >= acked.mono_ns - received.mono_ns - 1000

    scenario(tmp_path, test)


def test_a_refused_produce_tells_why(tmp_path: Path) -> None:
    async def test(seen: Told, client: Client, _: Client) -> None:
        await client.produce("t", b"one", partition=1, acks=5)
        (event,) = seen.news()
        assert event.kind == EventKind.REJECTED
        assert event.error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert (event.base_offset, event.last_offset, event.acks) == (-1, -1, 5)
        assert event.detail == "acks must be 0, 1 or all, not 5"

    scenario(tmp_path, test)


def test_a_fetch_tells_each_step(tmp_path: Path) -> None:
    async def test(seen: Told, client: Client, _: Client) -> None:
        await client.produce("t", b"one", b"two", partition=1)
        seen.news()
        await client.fetch("t", 1, partition=1)
        assert told(seen.news()) == started(1) + looked(1, 2) + served(1, 2, 81)
        await client.fetch("t", 2, partition=1)
        assert told(seen.news()) == started(2) + looked(2, 2) + empty(2)

    scenario(tmp_path, test)


def test_what_a_full_answer_leaves_for_the_next_was_not_looked_at(tmp_path: Path) -> None:
    """To say that there was nothing would be wrong, and costs as much as to say what there was."""

    async def test(seen: Told, client: Client, _: Client) -> None:
        for index in (0, 1):
            await client.produce("t", b"one", b"two", partition=index)
        seen.news()
        request = fetch_request("t", partition=1)
        request.topics[0].partitions += fetch_request("t", partition=0).topics[0].partitions
        request.max_bytes = 81
        response = await client.ask(request, 12)
        of_first, of_second = response.responses[0].partitions
        assert (len(of_first.records), len(of_second.records or b"")) == (81, 0)
        assert told(seen.news()) == started(0) + looked(0, 2) + served(0, 2, 81)

    scenario(tmp_path, test)


def test_a_fetch_of_an_unknown_partition_is_told_too(tmp_path: Path) -> None:
    async def test(seen: Told, client: Client, _: Client) -> None:
        await client.fetch("t", 5, partition=7)
        kinds = [(EventKind(event.kind), event.partition) for event in seen.news()]
        assert kinds == [(EventKind.FETCH_START, 7), (EventKind.FETCH_EMPTY, 7)]

    scenario(tmp_path, test)


def test_a_refused_fetch_tells_why(tmp_path: Path) -> None:
    async def test(seen: Told, client: Client, _: Client) -> None:
        await client.fetch("t", 99, partition=1)
        code = int(ErrorCode.OFFSET_OUT_OF_RANGE)
        why = {"base_offset": 99, "high_watermark": 0, "log_end": 0, "error_code": code}
        events = seen.news()
        assert events[2].duration_us is not None
        events[2] = events[2]._replace(duration_us=None)
        refused: Story = [("REJECTED", why)]
        assert told(events) == started(99) + looked(99, 0) + refused + empty(99)

    scenario(tmp_path, test)


def test_a_long_poll_tells_that_it_began_before_it_is_answered(tmp_path: Path) -> None:
    async def test(seen: Told, client: Client, other: Client) -> None:
        waiting = asyncio.ensure_future(other.fetch("t", 0, partition=1, wait=60_000))
        events: list[TraceEvent] = []
        while len(events) < 2:
            await client.metadata()
            events += seen.news()
        assert told(events) == started(0, 60_000) + looked(0, 0)
        await client.produce("t", b"one", b"two", partition=1)
        await waiting
        events = seen.news()
        assert told(events) == produced(0, 2, 81) + looked(0, 2) + served(0, 2, 81)
        assert events[-1].mono_ns > events[-2].mono_ns - 1
        assert (events[-1].duration_us or 0) >= (events[-2].duration_us or 0) > 0

    scenario(tmp_path, test)


def test_what_consumers_got_is_counted_once_though_they_waited(tmp_path: Path) -> None:
    async def counted(client: Client, other: Client) -> int:
        await client.create("t")
        waiting = asyncio.create_task(client.fetch("t", wait=20_000))
        await other.produce("t", b"v")
        sizes = [len((await waiting).records), len((await other.fetch("t")).records)]
        assert all(sizes)
        await other.fetch("t", 1)  # nothing
        return sum(sizes)

    async def test() -> None:
        async with node_on(FaultyFiles(), str(tmp_path), durability="os") as node:
            client, other = [await Client.connect(node.port) for _ in range(2)]
            try:
                size = await counted(client, other)
            finally:
                await client.close()
                await other.close()
            topic = node.broker.metrics.topic("t")
            assert (topic.fetches, topic.bytes_out) == (2, size)

    run(test)
