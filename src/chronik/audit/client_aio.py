"""aiokafka as an auditor's client: its own event loop, run whenever the workload calls."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import aiokafka
from aiokafka.errors import KafkaError

from chronik.audit.clients import (
    ConsumerSettings,
    Moved,
    Outgoing,
    Place,
    ProducerSettings,
    outcome_of,
    transient,
)
from chronik.audit.record_log import Polled
from chronik.audit.send_log import SendLog

T = TypeVar("T")
CLOSE_TIMEOUT_S = 10.0


class _Looped:
    """A private event loop on the caller's thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def _close_loop(self) -> None:
        """Ends what the client left running when it could not stop in order."""
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._run(_all_ended(left))
        self._loop.close()


async def _all_ended(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


class Producer(_Looped):
    """Futures of sends are looked at in order of completion, on each drain."""

    def __init__(self, settings: ProducerSettings, log: SendLog) -> None:
        super().__init__()
        self._log, self._topic = log, settings.topic
        self._waiting: dict[Any, int] = {}
        self._ended: list[tuple[int, Any]] = []
        self._client: Any = self._run(self._open(settings))

    async def _open(self, settings: ProducerSettings) -> Any:
        client: Any = aiokafka.AIOKafkaProducer(
            bootstrap_servers=settings.bootstrap,
            acks=settings.acks if settings.acks == "all" else int(settings.acks),
            enable_idempotence=settings.idempotent,
            linger_ms=5,
            request_timeout_ms=int(settings.timeout_s * 1000),
        )
        await client.start()
        return client

    def send(self, records: Sequence[Outgoing]) -> None:
        self._run(self._send(records))

    async def _send(self, records: Sequence[Outgoing]) -> None:
        for sequence, partition, key, value in records:
            future = await self._client.send(self._topic, value, key, partition)
            self._waiting[future] = sequence
            future.add_done_callback(self._done)

    def _done(self, future: Any) -> None:
        self._ended.append((self._waiting.pop(future), future))

    def drain(self, wait_s: float = 0.0) -> None:
        self._run(asyncio.sleep(wait_s))
        ended, self._ended = self._ended, []
        sequences, partitions, offsets = [], [], []
        for sequence, future in ended:
            error = None if future.cancelled() else future.exception()
            metadata = None if error or future.cancelled() else future.result()
            if metadata is not None and metadata.offset >= 0:
                sequences.append(sequence)
                partitions.append(metadata.partition)
                offsets.append(metadata.offset)
            else:
                name = type(error).__name__ if error else "acks=0"
                self._log.ended(sequence, outcome_of(name), name)
        self._log.acked(sequences, partitions, offsets)

    def settle(self, timeout_s: float) -> int:
        with suppress(TimeoutError):  # what has no outcome after the timeout is counted below
            self._run(asyncio.wait_for(self._client.flush(), timeout_s))
        self.drain()
        return len(self._waiting)

    def close(self, timeout_s: float) -> int:
        self.settle(timeout_s)
        with suppress(TimeoutError):
            self._run(asyncio.wait_for(self._client.stop(), timeout_s))
        self.drain()
        self._close_loop()
        return len(self._waiting)


class Consumer(_Looped):
    """Assigned partitions from their beginning, or a group."""

    def __init__(self, settings: ConsumerSettings, moved: Moved) -> None:
        super().__init__()
        self._settings, self._moved = settings, moved
        self._client: Any = self._run(self._open())

    async def _open(self) -> Any:
        settings = self._settings
        client: Any = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=settings.bootstrap,
            group_id=settings.group or None,
            enable_auto_commit=bool(settings.group),
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=settings.fetch_wait_ms,
        )
        if settings.group:
            client.subscribe([settings.topic], listener=_listener(client, self._moved))
        await client.start()
        if not settings.group:
            places = [
                aiokafka.TopicPartition(settings.topic, partition)
                for partition in range(settings.partitions)
            ]
            client.assign(places)
            await client.seek_to_beginning(*places)
            for place in places:
                self._moved("assign", place.partition, 0)
        return client

    def poll(self, timeout_s: float) -> list[Polled]:
        work = self._client.getmany(
            timeout_ms=int(timeout_s * 1000), max_records=self._settings.poll_records_max
        )
        with transient(KafkaError):
            polled = self._run(work)
        return [
            Polled(r.partition, r.offset, r.key, r.value)
            for records in polled.values()
            for r in records
        ]

    def places(self) -> dict[int, Place]:
        return self._run(self._places())

    async def _places(self) -> dict[int, Place]:
        found = {}
        for place in self._client.assignment():
            end = self._client.highwater(place)
            with transient(KafkaError, TimeoutError):
                position = await asyncio.wait_for(self._client.position(place), 1.0)
            found[place.partition] = Place(position, -1 if end is None else end)
        return found

    def close(self) -> None:
        with suppress(KafkaError, TimeoutError):
            self._run(asyncio.wait_for(self._client.stop(), CLOSE_TIMEOUT_S))
        self._close_loop()


def _listener(client: Any, moved: Moved) -> Any:
    base: Any = aiokafka.ConsumerRebalanceListener

    class Listener(base):  # type: ignore[misc]
        """Tells the ledger what the group gave and took."""

        async def on_partitions_revoked(self, revoked: Any) -> None:
            for place in revoked:
                moved("revoke", place.partition, -1)

        async def on_partitions_assigned(self, assigned: Any) -> None:
            for place in assigned:
                moved("rebalance", place.partition, await client.committed(place) or 0)

    return Listener()
