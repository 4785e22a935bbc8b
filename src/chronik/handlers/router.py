"""From frame to handler: header, table, body, answer; and what happens when any of these fails."""

import asyncio
import logging
import secrets
from collections.abc import Coroutine
from functools import partial
from typing import Any, NamedTuple

from chronik.broker.broker import Broker
from chronik.broker.controller import ControllerUnavailableError
from chronik.handlers.api import Api, Pending
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.trace.events import EventKind
from chronik.wire.apis import ADVERTISED, ApiKey
from chronik.wire.codec import WireError, encode
from chronik.wire.headers import first_flexible_response, read_request_header
from chronik.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from chronik.wire.schema import Message, fields_of
from chronik.wire.versions import decode_request, encode_response

log = logging.getLogger(__name__)


class _Route(NamedTuple):
    """An API with the versions that it is served in, and the first one with response header 1."""

    api: Api
    first: int
    last: int
    flexible_from: int


class Router:
    """Hands each call to the handler that the table names."""

    def __init__(self, broker: Broker, table: dict[int, Api], tasks: asyncio.TaskGroup) -> None:
        self._broker = broker
        self._routes = {
            key: _Route(api, *api.served, first_flexible_response(key))
            for key, api in table.items()
        }
        self._tasks = tasks
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False

    def route(self, call: Call) -> None:
        """Starts the call. Nothing that a client sends makes this raise."""
        if self._closed:
            call.hang_up()
            return
        try:
            header = read_request_header(call.frame)
        except WireError as error:
            self._malformed(call, error)
            return
        api_key, version, call.correlation_id, call.client_id, call.body = header
        call.api_key, call.api_version = api_key, version
        route = self._routes.get(api_key)
        if route is None or not route[1] <= version <= route[2]:
            self._unsupported(call)
            return
        api, _, _, flexible_from = route
        call.flexible_header = version >= flexible_from
        if api.patient:
            self._broker.turns.soon_or_now(partial(self._serve_in_turn, api, call))
        else:
            self._serve(api, call)

    def _serve_in_turn(self, api: Api, call: Call) -> None:
        if self._closed:
            call.hang_up()
        elif not call.abandoned:  # while it waited for its turn
            self._serve(api, call)

    def _serve(self, api: Api, call: Call) -> None:
        try:
            if api.fast is not None:
                api.fast(self._broker, call)
            else:
                self._start(api, call)
        except WireError as error:
            self._malformed(call, error)
        except Exception as error:  # noqa: BLE001 - errors are errors: answered, logged, never success
            self._failed(api, call, error)

    def _start(self, api: Api, call: Call) -> None:
        if api.later is not None:
            self._tasks.create_task(self._await(api, call, api.later(self._broker, call)))
            return
        assert api.handle is not None
        request = decode_request(api.request, call.api_version, call.frame, call.body)
        outcome = api.handle(self._broker, call, request)
        if isinstance(outcome, Message):
            self._answer(call, outcome)
        elif isinstance(outcome, Pending):
            outcome.awaited.add_done_callback(partial(self._come, api, call, outcome))
        else:
            task = self._tasks.create_task(self._finish(api, call, outcome))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def close(self) -> None:
        """The node stops: nobody is left to answer, and what they wait for may never come."""
        self._closed = True
        for task in list(self._running):
            task.cancel()

    def _come(self, api: Api, call: Call, pending: Pending, awaited: asyncio.Future[Any]) -> None:
        if awaited.cancelled() or call.abandoned:
            return  # the node stops, or the client has left
        try:
            self._answer(call, pending.response(awaited.result()))
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(api, call, error)

    async def _finish(self, api: Api, call: Call, outcome: Coroutine[Any, Any, Message]) -> None:
        try:
            self._answer(call, await outcome)
        except ControllerUnavailableError as error:
            self._unavailable(api, call, error)
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(api, call, error)

    async def _await(self, api: Api, call: Call, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(api, call, error)

    def _answer(self, call: Call, response: Message) -> None:
        body = encode_response(response, call.api_version)
        call.reply((body,))
        self._broker.count(call, ErrorCode.NONE)

    def _unsupported(self, call: Call) -> None:
        """The connection lives on; ApiVersions answers in version 0 so that any client reads it."""
        if call.api_key == ApiKey.API_VERSIONS:
            first, last = ADVERTISED[ApiKey.API_VERSIONS]
            known = ApiVersion(api_key=call.api_key, min_version=first, max_version=last)
            response = ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known]
            )
            call.reply((encode(response, 0),))
            return
        log.info(
            "%s (%s) asked for API %d version %d, which is not served",
            call.peer,
            call.client_id,
            call.api_key,
            call.api_version,
        )
        call.reply((int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big"),))

    def _malformed(self, call: Call, error: WireError) -> None:
        log.warning("closed %s: malformed request: %s", call.peer, error)
        call.hang_up()

    def _unavailable(self, api: Api, call: Call, error: ControllerUnavailableError) -> None:
        """No controller: retriable where the answer has a place for it, else the client retries."""
        log.warning("%s of %s: %s", api.key.name, call.peer, error)
        code = ErrorCode.REQUEST_TIMED_OUT if error.unknown else ErrorCode.NOT_CONTROLLER
        self._broker.count(call, code)
        self._end(api, call, code)

    def _failed(self, api: Api, call: Call, error: Exception) -> None:
        trace_id = secrets.token_hex(4)
        log.error("%s of %s failed, trace id %s", api.key.name, call.peer, trace_id, exc_info=error)
        tracer = self._broker.tracer
        if tracer.on:
            tracer.emit(EventKind.ERROR, client_id=call.client_id, detail=trace_id)
        self._broker.count(call, ErrorCode.UNKNOWN_SERVER_ERROR)
        self._end(api, call, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _end(self, api: Api, call: Call, code: ErrorCode) -> None:
        """Answers the code where the response has a place for it; else ends the connection."""
        body = error_body(api.response, call.api_version, code)
        if call.answer is None and body is not None:
            call.reply((body,))
        else:
            call.hang_up()


def error_body(response: type[Message], version: int, code: ErrorCode) -> bytes | None:
    """A response that says nothing but the code; None where this version has no place for it.

    Without the code an empty answer would be read as success. It is in the version's own shape:
    what `encode_response` makes older versions of is not there.
    """
    if all(field.name != "error_code" for field in fields_of(response, version)):
        return None
    message: Any = response()
    message.error_code = int(code)
    return encode(message, version)
