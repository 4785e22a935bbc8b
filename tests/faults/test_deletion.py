"""Deleting topics and records while other work is under way: nothing hangs or comes back."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from tests.faults.nodes import Client, FaultyFiles, node_on, produce_request, run

from chronik.broker.maintenance import Maintenance
from chronik.model.errors import ErrorCode
from chronik.node.node import Node

pytestmark = pytest.mark.integration


def directories(data: Path) -> list[str]:
    return sorted(path.name for path in (data / "topics").iterdir() if path.is_dir())


def log_bytes(data: Path) -> int:
    return sum(path.stat().st_size for path in data.rglob("*.log"))


async def settled(node: Node) -> None:
    """Until no deletion is under way."""
    while node.broker.partitions._removals:  # noqa: ASYNC110 - nobody tells when it is over
        await asyncio.sleep(0.01)


def test_fm58_a_deleted_topics_bytes_leave_the_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_on(FaultyFiles(), str(tmp_path)) as node:
            client = await Client.connect(node.port)
            await client.create("doomed", 3)
            for partition in range(3):
                await client.produce("doomed", b"secret bytes" * 100, partition=partition)
            assert directories(tmp_path) == ["doomed-0", "doomed-1", "doomed-2"]
            assert await client.delete("doomed") == 0
            await settled(node)
            assert directories(tmp_path) == []
            await client.close()

    run(scenario)


def test_fm58_a_namesake_starts_empty_while_the_old_one_is_still_being_removed(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        files = FaultyFiles()
        async with node_on(files, str(tmp_path)) as node:
            client = await Client.connect(node.port)
            await client.create("name")
            await client.produce("name", b"old")
            files.match = "name-0"
            gate = files.hold("rename")
            await client.delete("name")
            assert await client.create("name") == 0
            producing = asyncio.ensure_future(client.produce("name", b"new"))
            await asyncio.sleep(0.05)
            assert not producing.done(), "the directory is still the old topic's"
            gate.set()
            files.heal()
            assert (await producing).base_offset == 0
            answer = await client.fetch("name")
            assert b"new" in answer.records
            assert b"old" not in answer.records
            await client.close()

    run(scenario)


@pytest.mark.parametrize("generations", [2, 3, 5])
def test_fm58_many_namesakes_deleted_with_data_under_way_leave_nothing(
    tmp_path: Path, generations: int
) -> None:
    """Each generation has a batch waiting for the disk when it is deleted."""

    async def scenario() -> None:
        files = FaultyFiles()
        async with node_on(files, str(tmp_path)) as node:
            client, producer = await Client.connect(node.port), await Client.connect(node.port)
            await client.create("name")
            await client.produce("name", b"generation 0")
            files.match = "name-0"
            gate = files.hold("rename")
            for generation in range(1, generations):
                await client.delete("name")
                await client.create("name")
                producer.send(produce_request("name", b"generation %d" % generation), 9)
                await asyncio.sleep(0.02)
            await client.delete("name")
            files.heal()
            gate.set()
            await settled(node)
            await asyncio.sleep(0.05)
            assert directories(tmp_path) == []
            await client.create("name")
            assert (await client.produce("name", b"last")).base_offset == 0
            answer = await client.fetch("name")
            assert b"last" in answer.records
            assert b"generation" not in answer.records
            await client.close()
            await producer.close()

    run(scenario)


def test_fm58_records_of_a_topic_that_is_deleted_meanwhile_are_answered(tmp_path: Path) -> None:
    """DeleteRecords waits for its turn on a log that is removed before the turn comes."""

    async def scenario() -> None:
        files = FaultyFiles()
        async with node_on(files, str(tmp_path)) as node:
            client = await Client.connect(node.port)
            await client.create("name")
            await client.produce("name", b"one", b"two")
            writer, deleter = await Client.connect(node.port), await Client.connect(node.port)
            gate = files.hold("fdatasync")
            writing = asyncio.ensure_future(writer.produce("name", b"three"))
            await asyncio.sleep(0.05)
            partition = node.broker.partitions.by_name("name", 0)
            assert partition is not None
            assert partition.busy
            # The metadata log shares the disk; decide on the deletion as the controller would.
            image = node.broker.controller.image
            topics = {k: v for k, v in image.topics.items() if k != "name"}
            names = {k: v for k, v in image.topic_names.items() if v != "name"}
            gone = type(image)(
                image.cluster_id, image.version + 1, image.brokers, topics, names, image.configs
            )
            node.broker.partitions.image_changed(image, gone)
            deleting = asyncio.ensure_future(node.broker.partitions.advance_start(partition, 1))
            await asyncio.sleep(0.02)
            gate.set()
            files.heal()
            assert (await writing).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            with contextlib.suppress(OSError):
                await deleting
            await settled(node)
            assert directories(tmp_path) == []
            for one in (client, writer, deleter):
                await one.close()

    run(scenario)


def test_checkpoints_and_retention_go_on_after_a_topic_was_deleted(tmp_path: Path) -> None:
    """A background round that meets a deleted partition must neither hang nor skip the others."""

    async def scenario() -> None:
        async with node_on(FaultyFiles(), str(tmp_path)) as node:
            client = await Client.connect(node.port)
            for topic in ("a", "b"):
                await client.create(topic)
                await client.produce(topic, b"value")
            doomed = node.broker.partitions.by_name("a", 0)
            other = node.broker.partitions.by_name("b", 0)
            assert doomed is not None
            assert other is not None
            await client.delete("a")
            await settled(node)
            await node.broker.partitions.checkpoint(doomed)
            await node.broker.partitions.expire(doomed)
            await node.broker.partitions.advance_start(doomed, 1)
            await Maintenance(node.broker).checkpoint()
            assert other.log.synced_offset == 1
            assert directories(tmp_path) == ["b-0"]
            await client.close()

    run(scenario)


def test_a_checkpoint_under_way_does_not_write_into_a_namesakes_directory(tmp_path: Path) -> None:
    """The producers of a deleted topic must not be found by the next topic of that name."""

    async def scenario() -> None:
        files = FaultyFiles()
        async with node_on(files, str(tmp_path)) as node:
            client = await Client.connect(node.port)
            await client.create("name")
            await client.ask(
                produce_request("name", b"v", producer_id=5, producer_epoch=0, sequence=0), 9
            )
            partition = node.broker.partitions.by_name("name", 0)
            assert partition is not None
            files.match = "snapshot"
            gate = files.hold("create")
            checkpoint = asyncio.ensure_future(node.broker.partitions.checkpoint(partition))
            await asyncio.sleep(0.05)
            await client.delete("name")
            await client.create("name")
            producing = asyncio.ensure_future(client.produce("name", b"new"))
            await asyncio.sleep(0.05)
            gate.set()
            files.heal()
            with contextlib.suppress(OSError):
                await checkpoint
            assert (await producing).base_offset == 0
            assert not list((tmp_path / "topics" / "name-0").glob("*.snapshot"))
            await client.close()

    run(scenario)


def test_fm21_delete_records_beside_the_first_produce_makes_one_directory(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FaultyFiles()
        async with node_on(files, str(tmp_path)) as node:
            client, other = await Client.connect(node.port), await Client.connect(node.port)
            await client.create("name", 30)
            files.delays["rename"] = 0.002
            for partition in range(30):
                produced, deleted = await asyncio.gather(
                    client.produce("name", b"v", partition=partition),
                    other.delete_records("name", 0, partition),
                )
                assert produced.error_code == 0
                assert deleted.error_code == 0
            await client.close()
            await other.close()

    run(scenario)


def test_fm27_deleted_records_stay_deleted_and_retention_frees_their_bytes(tmp_path: Path) -> None:
    async def scenario() -> None:
        data = str(tmp_path)
        async with node_on(FaultyFiles(), data) as node:
            client = await Client.connect(node.port)
            await client.create("name", segment_bytes="1048576", retention_ms="-1")
            for _ in range(5):
                await client.produce("name", b"x" * 700_000)
            assert (await client.delete_records("name", 3)).low_watermark == 3
            assert (await client.fetch("name", 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (await client.fetch("name", 3)).error_code == 0
            await Maintenance(node.broker).retain()
            await client.close()
        assert log_bytes(tmp_path) < 2_200_000, "three of five segments are gone"
        async with node_on(FaultyFiles(), data) as node:
            client = await Client.connect(node.port)
            assert (await client.fetch("name", 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            answer = await client.fetch("name", 3)
            assert (answer.log_start_offset, answer.high_watermark) == (3, 5)
            await client.close()

    run(scenario)
