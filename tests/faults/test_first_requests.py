"""What a node does beside its answers: one state per partition, the watermark, no log lines."""

import asyncio
import logging
from pathlib import Path

import pytest
from tests.faults.nodes import Client, FaultyFiles, node_on, produce_request, run

CLIENTS = 12


def test_fm21_first_requests_that_meet_make_one_state_of_a_partition(tmp_path: Path) -> None:
    """Each partition's first produces and fetches come at once, while its directory is made."""

    async def scenario() -> None:
        files = FaultyFiles()
        async with node_on(files, str(tmp_path)) as node:
            clients = [await Client.connect(node.port) for _ in range(CLIENTS)]
            await clients[0].create("name", 10)
            files.delays["mkdir"] = files.delays["create"] = files.delays["rename"] = 0.003
            for partition in range(10):
                answers = await asyncio.gather(
                    *(one.produce("name", b"v", partition=partition) for one in clients[1:]),
                    clients[0].fetch("name", 0, partition),
                )
                offsets = sorted(answer.base_offset for answer in answers[:-1])
                assert offsets == list(range(CLIENTS - 1)), "nobody shares an offset"
                fetched = await clients[0].fetch("name", 0, partition)
                assert fetched.high_watermark == CLIENTS - 1
            directories = [path for path in (tmp_path / "topics").iterdir() if path.is_dir()]
            assert len(directories) == 10
            for one in clients:
                await one.close()

    run(scenario)


@pytest.mark.parametrize("acks", [0, 1])
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_fm25_the_watermark_advances_after_the_answer(
    tmp_path: Path, acks: int, durability: str
) -> None:
    """A waiting reader gets the last record although nothing is produced after it."""

    async def scenario() -> None:
        async with node_on(FaultyFiles(), str(tmp_path), durability=durability) as node:
            writer, reader = await Client.connect(node.port), await Client.connect(node.port)
            await writer.create("t")
            for offset in range(5):
                waiting = asyncio.ensure_future(reader.fetch("t", offset, wait=10_000))
                await asyncio.sleep(0)
                if acks:
                    assert (await writer.produce("t", b"v", acks=acks)).base_offset == offset
                else:
                    writer.send(produce_request("t", b"v", acks=0), 9)
                answer = await asyncio.wait_for(waiting, 5)
                assert answer.high_watermark == offset + 1
                assert answer.records
            await writer.close()
            await reader.close()

    run(scenario)


def test_fm61_requests_write_no_log_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not even with every level on: lines are for what an operator must know."""

    async def scenario() -> None:
        async with node_on(FaultyFiles(), str(tmp_path), durability="os") as node:
            client = await Client.connect(node.port)
            await client.create("t", 2)
            await client.produce("t", b"the first one makes the log")
            await client.fetch("t")
            caplog.clear()
            for offset in range(1, 101):
                assert (await client.produce("t", b"v")).base_offset == offset
                assert (await client.fetch("t", offset)).error_code == 0
                await client.metadata()
            lines = [record for record in caplog.records if record.name.startswith("chronik")]
            assert [line.getMessage() for line in lines] == []
            await client.close()

    with caplog.at_level(logging.DEBUG):
        run(scenario)
