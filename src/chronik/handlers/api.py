"""One line of the table: an API, the versions served, and the function that serves it."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple

from chronik.broker.broker import Broker
from chronik.broker.peering import PeerApi
from chronik.handlers.call import Call
from chronik.wire.apis import ADVERTISED, ANY_VERSION, ApiKey, VersionRange, served_versions
from chronik.wire.schema import Message


class Pending(NamedTuple):
    """An answer that waits for one thing, and what is made of it then: it needs no task."""

    awaited: "asyncio.Future[Any]"
    response: Callable[[Any], Message]


Handle = Callable[[Broker, Call, Any], "Message | Pending | Coroutine[Any, Any, Message]"]
Fast = Callable[[Broker, Call], None]
Later = Callable[[Broker, Call], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Api:
    """Ordinary APIs have `handle`; the hot ones read and write their bytes themselves (`fast`)."""

    key: ApiKey | PeerApi
    request: type[Message] = Message
    response: type[Message] = Message
    handle: Handle | None = None
    fast: Fast | None = None
    later: Later | None = None
    """Like `fast`, for what takes its time."""
    patient: bool = False
    """Where many such requests come at once they take turns, so that others need not wait."""

    @property
    def served(self) -> VersionRange:
        """The versions that are understood; nodes of one cluster understand each other."""
        return ANY_VERSION if isinstance(self.key, PeerApi) else served_versions(self.key)

    @property
    def advertised(self) -> VersionRange:
        """What ApiVersions says: as Apache Kafka 4.x."""
        assert isinstance(self.key, ApiKey)
        return ADVERTISED[self.key]
