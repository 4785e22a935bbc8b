"""A node that does as little for a client as can be done: what is measured with it is the client.

    no_work.py produce|fetch up ...        with the options of `chronik up`

`produce`: a Produce is acknowledged without a look at its records, and they are forgotten.
`fetch`: a Fetch is answered from memory, with what was answered when the same was asked first.
Only requests as librdkafka makes them are meant, for one topic by its id; all else is Chronik.
client_limit.py uses it.
"""

import struct
import sys
from typing import Any

from chronik.cli import main
from chronik.handlers import fetch
from chronik.net.connection import Connection
from chronik.wire.apis import ApiKey
from chronik.wire.fetch_response import write_plain_answer
from chronik.wire.headers import read_request_header, response_frame_start
from chronik.wire.primitives import Buffer
from chronik.wire.produce import write_one_result

LAYOUTS = {
    ApiKey.PRODUCE: struct.Struct(">8x16sxi"),
    ApiKey.FETCH: struct.Struct(">22x16sxi4xq"),
}
"""The first topic id and partition of a body, and the offset of a Fetch."""
FIRST_VERSION = {ApiKey.PRODUCE: 13, ApiKey.FETCH: 15}
known: dict[tuple[Any, ...], tuple[int, list[Buffer]]] = {}
"""Answers with records: their size and pieces, by topic, partition and offset."""
serve_as_usual = Connection._dispatch
answer_as_usual = fetch._Fetch._answer


def dispatch_produce(self: Connection, frame: bytearray) -> None:
    asked = found(frame, ApiKey.PRODUCE)
    if asked is None:
        serve_as_usual(self, frame)
        return
    version, correlation_id, (topic_id, index) = asked
    body = write_one_result(version, topic_id, index, 0, -1, 0)
    send(self, ApiKey.PRODUCE, version, correlation_id, len(body), [body])


def dispatch_fetch(self: Connection, frame: bytearray) -> None:
    asked = found(frame, ApiKey.FETCH)
    answer = known.get(asked[2]) if asked is not None else None
    if asked is None or answer is None or self._calls:
        serve_as_usual(self, frame)
        return
    version, correlation_id, _ = asked
    send(self, ApiKey.FETCH, version, correlation_id, *answer)


def found(frame: bytearray, key: ApiKey) -> tuple[int, int, tuple[Any, ...]] | None:
    """Version, correlation id, and what comes first in the body, of a request of this kind."""
    api_key, version, correlation_id, _, body = read_request_header(frame)
    layout = LAYOUTS[key]
    if api_key != key or version < FIRST_VERSION[key] or len(frame) < body + layout.size:
        return None
    return version, correlation_id, layout.unpack_from(frame, body)


def send(
    self: Connection, key: ApiKey, version: int, correlation_id: int, size: int, body: list[Buffer]
) -> None:
    assert self._transport is not None
    head = response_frame_start(key, version, correlation_id, size)
    self._transport.writelines([head, *body])


def remember_answer(self: Any, size: int) -> None:
    """Of the first partition only, with the records where they are: in the mapped file."""
    for wanted, result in self._results:
        if result.records and wanted.topic_id is not None:
            pieces = write_plain_answer(0, wanted.topic_id, [result])
            if pieces is not None:
                asked = (wanted.topic_id, wanted.index, wanted.fetch_offset)
                known[asked] = sum(map(len, pieces)), pieces
    answer_as_usual(self, size)


if __name__ == "__main__":
    if sys.argv.pop(1) == "produce":
        Connection._dispatch = dispatch_produce  # type: ignore[method-assign]
    else:
        Connection._dispatch = dispatch_fetch  # type: ignore[method-assign]
        fetch._Fetch._answer = remember_answer  # type: ignore[method-assign]
    main()
