"""An answer that waits without a task: it leaves when it can, and an error is never a success."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.kit import run, turn

from chronik.handlers.api import Api, Pending
from chronik.handlers.call import Call, Peer
from chronik.handlers.router import Router
from chronik.model.errors import ErrorCode
from chronik.trace.tracer import OFF
from chronik.wire.apis import ApiKey
from chronik.wire.codec import decode, encode
from chronik.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

VERSION = 3  # the last one without tagged fields: the answer's head is the correlation id alone
HEAD = ApiKey.HEARTBEAT.to_bytes(2, "big") + VERSION.to_bytes(2, "big") + bytes(4) + b"\xff\xff"


class Scene:
    """A router with one API, whose answer waits for `awaited`."""

    def __init__(self, tasks: asyncio.TaskGroup, respond: Callable[[Any], Any]) -> None:
        self.awaited: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.counted: list[int] = []
        self.hung_up = False
        broker: Any = SimpleNamespace(tracer=OFF, count=lambda _, code: self.counted.append(code))
        pending = Pending(self.awaited, respond)
        api = Api(ApiKey.HEARTBEAT, HeartbeatRequest, HeartbeatResponse, lambda *_: pending)
        router = Router(broker, {ApiKey.HEARTBEAT: api}, tasks)
        frame = bytearray(HEAD + encode(HeartbeatRequest("g", 1, "m"), VERSION))
        self.call = Call(frame, Peer("", 0, "", 0), 0, lambda _: None, self._hang_up)
        router.route(self.call)

    def _hang_up(self) -> None:
        self.hung_up = True

    @property
    def code(self) -> int:
        assert self.call.answer is not None
        body = b"".join(self.call.answer)[8:]
        return decode(HeartbeatResponse, VERSION, body).error_code


def told(error: int) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error)


def test_it_leaves_when_what_it_waits_for_has_come_and_not_before() -> None:
    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            scene = Scene(tasks, told)
            await turn()
            assert scene.call.answer is None
            scene.awaited.set_result(27)
            await turn()
            assert scene.code == 27
            assert scene.counted == [ErrorCode.NONE]

    run(scenario)


@pytest.mark.parametrize("where", ["in what it waits for", "in the response"])
def test_an_error_is_answered_as_one(where: str) -> None:
    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            scene = Scene(tasks, lambda _: told(1 // 0))
            if where == "in the response":
                scene.awaited.set_result(0)
            else:
                scene.awaited.set_exception(OSError("no disk"))
            await turn()
            assert scene.code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert scene.counted == [ErrorCode.UNKNOWN_SERVER_ERROR]

    run(scenario)


@pytest.mark.parametrize("why", ["the client has left", "the node stops"])
def test_nobody_is_answered_where_nobody_waits(why: str) -> None:
    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            scene = Scene(tasks, told)
            if why == "the node stops":
                scene.awaited.cancel()
            else:
                scene.call.abandoned = True
                scene.awaited.set_result(0)
            await turn()
            assert scene.call.answer is None
            assert scene.counted == []
            assert not scene.hung_up

    run(scenario)
