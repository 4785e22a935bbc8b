"""Groups of several members: rebalances, restarts and deaths, with each client library."""

import asyncio
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer
from kafka import KafkaConsumer
from tests.clients.adapters.confluent import settings
from tests.clients.kit import SECONDS_MAX, Client, Record, payload
from tests.clients.scenarios import NewTopic
from tests.servers import Server
from typing_extensions import override

pytestmark = pytest.mark.groups

SESSION_MS = 6000
LIBRARIES = ("confluent", "kafka-python", "aiokafka")


class Member(ABC):
    """A consumer that subscribed; it commits only when told to."""

    @abstractmethod
    def poll(self) -> list[bytes | None]:
        """What came within a moment; it also moves a rebalance on."""

    @abstractmethod
    def owned(self) -> set[int]:
        """Its partitions."""

    @abstractmethod
    def commit(self) -> None:
        """Commits what was polled; nothing but `close` may follow."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the group, unless it is static."""


class ConfluentMember(Member):
    def __init__(self, bootstrap: str, group: str, topic: str, **more: object) -> None:
        defaults: dict[str, object] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        defaults |= {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 500}
        self._consumer = Consumer(settings(bootstrap, group_id=group, **{**defaults, **more}))
        self._consumer.subscribe([topic])

    @override
    def poll(self) -> list[bytes | None]:
        messages = self._consumer.consume(100, 0.05)
        assert not [message.error() for message in messages if message.error()]
        return [message.value() for message in messages]

    @override
    def owned(self) -> set[int]:
        return {part.partition for part in self._consumer.assignment()}

    @override
    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    @override
    def close(self) -> None:
        self._consumer.close()


class KafkaPythonMember(Member):
    """It has a thread, because a rebalance moves on only while every member polls."""

    def __init__(self, bootstrap: str, group: str, topic: str, **more: object) -> None:
        self._consumer: Any = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            **more,
        )
        self._values: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for records in self._consumer.poll(timeout_ms=100).values():
                for each in records:
                    self._values.put(each.value)

    @override
    def poll(self) -> list[bytes | None]:
        time.sleep(0.05)
        return [self._values.get() for _ in range(self._values.qsize())]

    @override
    def owned(self) -> set[int]:
        return {part.partition for part in self._consumer.assignment()}

    @override
    def commit(self) -> None:
        self._end_thread()
        self._consumer.commit()

    @override
    def close(self) -> None:
        self._end_thread()
        self._consumer.close(autocommit=False)

    def _end_thread(self) -> None:
        self._stop.set()
        self._thread.join()


class AioMember(Member):
    """It lives while it polls, so its heartbeats come from there."""

    def __init__(self, bootstrap: str, group: str, topic: str, **more: object) -> None:
        self._loop = asyncio.new_event_loop()
        self._consumer = self._loop.run_until_complete(self._start(bootstrap, group, topic, more))

    async def _start(self, bootstrap: str, group: str, topic: str, more: dict[str, object]) -> Any:
        consumer: Any = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            **more,
        )
        # `start` waits for the whole rebalance, for which the other members have to poll.
        self._starting = asyncio.ensure_future(consumer.start())
        return consumer

    @override
    def poll(self) -> list[bytes | None]:
        if not self._starting.done():
            self._loop.run_until_complete(asyncio.wait([self._starting], timeout=0.05))
            return []
        self._starting.result()
        found = self._loop.run_until_complete(self._consumer.getmany(timeout_ms=50))
        return [each.value for records in found.values() for each in records]

    @override
    def owned(self) -> set[int]:
        return {part.partition for part in self._consumer.assignment()}

    @override
    def commit(self) -> None:
        self._loop.run_until_complete(self._consumer.commit())

    @override
    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


MEMBERS: dict[str, type[Any]] = {
    "confluent": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AioMember,
}


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def settle(members: Sequence[Member], shares: list[int], seconds: float = 40) -> set[bytes | None]:
    """Polls until each partition has one owner and the owners have these shares."""
    values: set[bytes | None] = set()
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        for member in members:
            values.update(member.poll())
        owned = [member.owned() for member in members]
        if sorted(map(len, owned)) == shares and len(set().union(*owned)) == sum(shares):
            return values
    raise AssertionError(f"no rest: {[member.owned() for member in members]}")


def read(member: Member, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    limit = time.monotonic() + SECONDS_MAX
    while len(values) < count and time.monotonic() < limit:
        values += member.poll()
    return values


@pytest.mark.parametrize("library", LIBRARIES)
def test_fm65_three_members_share_join_and_leave(
    server: Server, topic: NewTopic, group: str, library: str
) -> None:
    name = topic(partitions=6)
    members = [MEMBERS[library](server.bootstrap, group, name) for _ in range(2)]
    settle(members, [3, 3])
    members.append(MEMBERS[library](server.bootstrap, group, name))
    settle(members, [2, 2, 2])
    members.pop().close()
    settle(members, [3, 3])
    for member in members:
        member.close()


@pytest.mark.parametrize("library", LIBRARIES)
def test_fm68_a_group_resumes_where_it_committed_after_a_restart_of_the_server(
    server: Server, topic: NewTopic, confluent: Client, group: str, library: str
) -> None:
    name = topic()
    confluent.produce(name, [Record(payload(n)) for n in range(5)])
    with closing(MEMBERS[library](server.bootstrap, group, name)) as first:
        assert read(first, 5) == [payload(n) for n in range(5)]
        first.commit()
    server.restart()
    confluent.produce(name, [Record(payload(n)) for n in range(5, 8)])
    with closing(MEMBERS[library](server.bootstrap, group, name)) as second:
        assert read(second, 3) == [payload(n) for n in range(5, 8)]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    server: Server, topic: NewTopic, group: str, library: str
) -> None:
    name = topic(partitions=4)
    one, two = (
        MEMBERS[library](server.bootstrap, group, name, group_instance_id=f"static-{n}")
        for n in range(2)
    )
    settle([one, two], [2, 2])
    kept, given_back = one.owned(), two.owned()
    two.close()
    one.poll()
    assert one.owned() == kept
    again = MEMBERS[library](server.bootstrap, group, name, group_instance_id="static-1")
    settle([one, again], [2, 2])
    assert (one.owned(), again.owned()) == (kept, given_back)
    one.close()
    again.close()


def test_cooperative_members_keep_what_they_have_while_others_join(
    server: Server, topic: NewTopic, group: str
) -> None:
    name = topic(partitions=6)
    more = {"partition_assignment_strategy": "cooperative-sticky"}
    members = [ConfluentMember(server.bootstrap, group, name, **more)]
    settle(members, [6])
    for shares in ([3, 3], [2, 2, 2]):
        before = [member.owned() for member in members]
        members.append(ConfluentMember(server.bootstrap, group, name, **more))
        settle(members, shares)
        for had, member in zip(before, members, strict=False):
            assert member.owned() <= had, "only the joining member gets new partitions"
    for member in members:
        member.close()


DOOMED = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2],
                     "session.timeout.ms": 6000, "heartbeat.interval.ms": 500})
consumer.subscribe([sys.argv[3]])
while True:
    consumer.poll(0.05)
    if consumer.assignment():
        print("in", flush=True)
"""


def test_the_partitions_of_a_killed_member_are_taken_over(
    server: Server, topic: NewTopic, confluent: Client, group: str
) -> None:
    name = topic(partitions=4)
    survivor = ConfluentMember(server.bootstrap, group, name)
    command = [sys.executable, "-c", DOOMED, server.bootstrap, group, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as doomed:
        assert doomed.stdout is not None
        settle([survivor], [2])
        assert doomed.stdout.readline() == b"in\n"
        doomed.send_signal(signal.SIGKILL)
        killed = time.monotonic()
    settle([survivor], [4])
    assert time.monotonic() - killed > SESSION_MS / 1000 - 1, "a session is a promise"
    confluent.produce(name, [Record(payload(n), partition=n) for n in range(4)])
    assert sorted(map(str, read(survivor, 4))) == [str(payload(n)) for n in range(4)]
    survivor.close()
