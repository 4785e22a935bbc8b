"""Links between nodes: connections that come, break, are refused, and end with the node."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from chronik.broker.peering import Message, PeerApi, PeerUnavailableError
from chronik.net.peers import PeerLinks
from chronik.wire.apis import ApiKey

HOST = "127.0.0.1"


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(10):
            await test()

    asyncio.run(limited())


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def served() -> AsyncIterator[tuple[int, asyncio.Queue[bytes]]]:
    """A node that takes everything and answers nothing: its port, and what came."""
    received: asyncio.Queue[bytes] = asyncio.Queue()
    taking: set[asyncio.Task[None]] = set()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        taking.add(task)
        while data := await reader.read(4096):
            received.put_nowait(data)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(take, HOST, 0) as server:
        yield int(server.sockets[0].getsockname()[1]), received
        await asyncio.gather(*taking, return_exceptions=True)


def test_a_refused_connection_is_known_until_one_succeeds() -> None:
    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            links = PeerLinks(tasks)
            links.set_address(2, HOST, closed_port())
            assert not links.refuses(2)
            with pytest.raises(PeerUnavailableError) as caught:
                await links.call(2, PeerApi.HELLO, 0, [b"x"], 1.0)
            assert not caught.value.sent
            assert links.refuses(2)
            assert not links.refuses(3)
            async with served() as (port, received):
                links.set_address(2, HOST, port)
                links.post(Message(2, PeerApi.RAFT, b"hello"))
                assert b"hello" in await received.get()
                assert not links.refuses(2)
                links.close()

    run(scenario)


def test_a_node_that_was_heard_of_is_connected_to_without_a_pause() -> None:
    async def scenario() -> None:
        port = closed_port()
        async with asyncio.TaskGroup() as tasks:
            links = PeerLinks(tasks)
            links.set_address(2, HOST, port)
            for why in ("cannot connect", "a moment ago"):
                with pytest.raises(PeerUnavailableError, match=why):
                    await links.call(2, PeerApi.HELLO, 0, [b"x"], 1.0)
            links.heard_of(2)
            links.heard_of(3)  # whose address is unknown
            with pytest.raises(PeerUnavailableError, match="cannot connect"):
                await links.call(2, PeerApi.HELLO, 0, [b"x"], 1.0)

    run(scenario)


def test_whoever_waits_for_a_connection_learns_that_the_link_was_closed() -> None:
    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            links = PeerLinks(tasks)
            links.set_address(2, "192.0.2.1", 9)  # TEST-NET: nobody answers there
            call = tasks.create_task(_fate(links))
            await asyncio.sleep(0.01)
            links.close()
            assert await call in {"the link was closed", "unreachable"}

    run(scenario)


async def _fate(links: PeerLinks) -> str:
    try:
        await links.call(2, PeerApi.HELLO, 0, [b"x"], 1.0)
    except PeerUnavailableError as error:
        return str(error) if "closed" in str(error) else "unreachable"
    return "answered"


def test_a_caller_that_gives_up_does_not_take_the_others_connection_away() -> None:
    async def scenario() -> None:
        async with served() as (port, received), asyncio.TaskGroup() as tasks:
            links = PeerLinks(tasks)
            links.set_address(2, HOST, port)
            impatient = tasks.create_task(_fate(links))
            await asyncio.sleep(0)
            links.post(Message(2, PeerApi.RAFT, b"stays"))
            impatient.cancel()
            assert b"stays" in await received.get()
            links.close()

    run(scenario)


def test_a_task_group_that_ends_ends_the_links_too() -> None:
    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            links = PeerLinks(tasks)
            links.set_address(2, HOST, closed_port())
        links.post(Message(2, PeerApi.RAFT, b"late"))
        with pytest.raises(PeerUnavailableError, match="stops"):
            await links.call(2, PeerApi.HELLO, 0, [b"x"], 1.0)

    run(scenario)


def test_requests_without_an_answer_end_in_time_the_impatient_first() -> None:
    async def scenario() -> None:
        async with served() as (port, _), asyncio.TaskGroup() as tasks:
            links = PeerLinks(tasks)
            links.set_address(2, HOST, port)
            outcomes: asyncio.Queue[tuple[str, object]] = asyncio.Queue()
            for name, timeout_s in (("patient", 0.06), ("impatient", 0.02)):
                links.request(
                    2,
                    PeerApi.HELLO,
                    0,
                    [b"x"],
                    timeout_s,
                    lambda outcome, name=name: outcomes.put_nowait((name, outcome)),  # type: ignore[misc]
                )
            for expected in ("impatient", "patient"):
                name, outcome = await outcomes.get()
                assert name == expected
                assert isinstance(outcome, PeerUnavailableError)
                assert outcome.sent
            links.close()

    run(scenario)


def test_a_request_learns_that_its_connection_broke_or_was_never_made() -> None:
    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            links = PeerLinks(tasks)
            outcomes: asyncio.Queue[object] = asyncio.Queue()

            async def ask() -> PeerUnavailableError:
                links.request(2, PeerApi.HELLO, 0, [b"x"], 5.0, outcomes.put_nowait)
                outcome = await outcomes.get()
                assert isinstance(outcome, PeerUnavailableError)
                return outcome

            assert "unknown" in str(await ask())
            links.set_address(2, HOST, closed_port())
            assert not (await ask()).sent
            async with served() as (port, received):
                links.set_address(2, HOST, port)
                broken = tasks.create_task(ask())
                await received.get()
                links.close()
                assert (await broken).sent

    run(scenario)


@asynccontextmanager
async def answering(answer: Callable[[bytes], bytes]) -> AsyncIterator[int]:
    """A node that answers each request with what is made of its correlation id."""

    taking: set[asyncio.Task[None]] = set()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        taking.add(task)
        try:
            while length := await reader.read(4):
                request = await reader.readexactly(int.from_bytes(length, "big"))
                frame = answer(request[4:8])
                writer.write(len(frame).to_bytes(4, "big") + frame)
        finally:
            writer.close()
            await writer.wait_closed()

    async with await asyncio.start_server(take, HOST, 0) as server:
        yield int(server.sockets[0].getsockname()[1])
        await asyncio.gather(*taking, return_exceptions=True)


@pytest.mark.parametrize(
    ("api_key", "version", "header"),
    [
        (PeerApi.HELLO, 0, b""),
        (ApiKey.FETCH, 11, b""),
        (ApiKey.FETCH, 17, b"\0"),
        (ApiKey.FETCH, 17, b"\1\7\3abc"),
    ],
)
@pytest.mark.parametrize("size", [0, 1, 5000])
def test_an_answer_begins_after_its_header_with_tags_or_without(
    api_key: int, version: int, header: bytes, size: int
) -> None:
    async def scenario() -> None:
        said, large, small = b"\0body"[:size], b"x" * size, memoryview(b"y")
        async with (
            answering(lambda name: name + header + said) as port,
            asyncio.TaskGroup() as tasks,
        ):
            links = PeerLinks(tasks)
            links.set_address(2, HOST, port)
            for _ in range(2):
                answer = await links.call(2, api_key, version, [large, small], 5.0)
                assert bytes(answer) == said
            links.close()

    run(scenario)


def test_an_answer_too_short_for_its_header_ends_the_connection() -> None:
    async def scenario() -> None:
        async with answering(lambda name: name[:2]) as port, asyncio.TaskGroup() as tasks:
            links = PeerLinks(tasks)
            links.set_address(2, HOST, port)
            with pytest.raises(PeerUnavailableError) as caught:
                await links.call(2, PeerApi.HELLO, 0, [b"x"], 5.0)
            assert caught.value.sent
            links.close()

    run(scenario)
