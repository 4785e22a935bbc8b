"""A broker inside this process: `with chronik.embedded() as broker:`.

The node runs on a thread of its own with an event loop of its own, on a free loopback port, and
talks to any Kafka client. It is the same node that `chronik up` starts.
"""

import asyncio
import contextlib
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from chronik.model.broker_configs import validate_static
from chronik.model.settings import Durability, NodeSettings, TraceMode

ConfigText = str | int | float | bool


@dataclass(frozen=True, slots=True)
class EmbeddedBroker:
    """A running broker, as its users see it."""

    bootstrap: str
    """What a client is given as `bootstrap.servers`: 127.0.0.1:PORT."""
    port: int
    data_dir: Path


@contextlib.contextmanager
def embedded(
    *,
    durability: Durability = "os",
    trace: TraceMode = "off",
    configs: Mapping[str, ConfigText] | None = None,
    data_dir: str | Path | None = None,
    port: int = 0,
) -> Iterator[EmbeddedBroker]:
    """A broker from here to the end of the block; what fails at the start is raised here.

    durability: "os" acknowledges what is in the page cache, as Kafka does; nothing is lost
        unless the machine dies, which no test survives either. "fsync" is what `chronik up` does.
    trace: "files" writes the evidence of every batch's way to data_dir/traces.
    configs: broker configs by Kafka's names, e.g. {"num.partitions": 3}.
    data_dir: kept when it is given; a temporary folder, gone afterwards, when it is not.
    port: 0 takes a free one.
    """
    texts = {key: _text(value) for key, value in (configs or {}).items()}
    validate_static(texts)
    with contextlib.ExitStack() as stack:
        if data_dir is None:
            data_dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="chronik-"))
        settings = NodeSettings(
            data_dir=str(Path(data_dir).absolute()),
            port=port,
            durability=durability,
            trace=trace,
            configs=tuple(texts.items()),
        )
        yield stack.enter_context(_on_a_thread(settings))


def _text(value: ConfigText) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextlib.contextmanager
def _on_a_thread(settings: NodeSettings) -> Iterator[EmbeddedBroker]:
    host = _Host(settings)
    # A daemon: a block that is never left must not keep the interpreter from ending.
    thread = threading.Thread(target=host.run, name="chronik-embedded", daemon=True)
    thread.start()
    try:
        yield host.started.result()
    finally:
        host.stop()
        thread.join()
    if host.failure is not None:
        raise host.failure


class _Host:
    """The node's thread; `started` and `stop` are its two doors."""

    def __init__(self, settings: NodeSettings) -> None:
        self.started: Future[EmbeddedBroker] = Future()
        self.failure: BaseException | None = None
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def run(self) -> None:
        """The whole life of the node."""
        try:
            import uvloop  # noqa: PLC0415 - here the caller's thread does not wait for it

            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - it is raised again in the caller's thread
            cause = _innermost(error)
            if self.started.done():
                self.failure = cause
            else:
                self.started.set_exception(cause)

    def stop(self) -> None:
        """Asks the node to end; without effect on one that has ended."""
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the node has failed
                self._loop.call_soon_threadsafe(self._stop.set)

    async def _serve(self) -> None:
        from chronik.node.node import running  # noqa: PLC0415 - the heavy part, see above

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with running(self._settings) as node:
            broker = EmbeddedBroker(node.bootstrap, node.port, Path(self._settings.data_dir))
            self.started.set_result(broker)
            await self._stop.wait()


def _innermost(error: BaseException) -> BaseException:
    """The one error that a task group wrapped."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _CallableModule(ModuleType):
    """`chronik.embedded` names this module once it is imported; it can be called all the same."""

    def __call__(self, **options: Any) -> contextlib.AbstractContextManager[EmbeddedBroker]:
        return embedded(**options)


sys.modules[__name__].__class__ = _CallableModule
