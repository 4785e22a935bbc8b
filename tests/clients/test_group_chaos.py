"""Eight consumers in three libraries while every second one joins, leaves, freezes or is killed.

Two minutes per strategy, with `--soak`.
"""

import itertools
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients.chaos_member import SPEAKS
from tests.rounds import Rounds
from tests.servers import Chronik

MEMBER = Path(__file__).with_name("chaos_member.py")
TOPIC, GROUP = "chaos", "chaos-group"
PARTITIONS = 16
MEMBERS = 8
RECORDS_PER_SECOND = 200
CALM_SECONDS_MAX = 60.0
CHAOS_SECONDS, ROUND_SECONDS = 120, 10
SEED = 4
FROZEN_SECONDS_MAX = 5.0
Processed = tuple[int, int, int]
"""Generation, partition, offset."""


class Member:
    """A consumer in a process of its own."""

    def __init__(
        self, number: int, library: str, strategy: str, bootstrap: str, folder: Path
    ) -> None:
        self.name = f"{number}-{library}"
        self.ledger = folder / f"{self.name}.ledger"
        self.wakes_at: float | None = None
        with (folder / f"{self.name}.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, MEMBER, library, strategy, bootstrap, GROUP, TOPIC, self.ledger],
                stdout=log,
                stderr=log,
            )

    def processed(self) -> list[Processed]:
        """Every record so far; the last line of a killed member is whole, or it is not there."""
        if not self.ledger.exists():
            return []
        lines = self.ledger.read_text().splitlines()
        return [(int(g), int(p), int(o)) for g, p, o in (line.split() for line in lines)]

    def end(self, how: signal.Signals) -> None:
        """Asks or makes it end, and waits until it has."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(how)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"member {self.name} is stuck: it does not leave") from None


class Group:
    """The members, and what happens to them."""

    def __init__(self, bootstrap: str, folder: Path, strategy: str, seed: int) -> None:
        self.members: list[Member] = []
        self.gone: list[Member] = []
        self.happened: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._new = (
            Member(number, library, strategy, bootstrap, folder)
            for number, library in enumerate(itertools.cycle(SPEAKS[strategy]))
        )

    def join(self) -> None:
        """A member more."""
        self.members.append(next(self._new))

    def accident(self) -> None:
        """One of the four; a group that shrank grows first."""
        awake = [member for member in self.members if member.wakes_at is None]
        do: Callable[[Member], None] = self._random.choice((self._leave, self._freeze, self._kill))
        if len(self.members) < MEMBERS or not awake:
            self.join()
            self.happened["join"] += 1
        else:
            do(self._random.choice(awake))

    def wake(self, now: float) -> None:
        """Continues the frozen ones whose time has come."""
        for member in self.members:
            if member.wakes_at is not None and member.wakes_at <= now:
                member.process.send_signal(signal.SIGCONT)
                member.wakes_at = None

    def processed(self) -> Iterator[tuple[Member, Processed]]:
        """What all did, the dead too."""
        for member in self.members + self.gone:
            for one in member.processed():
                yield member, one

    def close(self) -> None:
        """Nobody is left."""
        for member in self.members + self.gone:
            member.end(signal.SIGKILL)

    def _leave(self, member: Member) -> None:
        self.happened["leave"] += 1
        member.process.send_signal(signal.SIGTERM)  # it may take its time: nobody waits for it here
        self._remove(member)

    def _kill(self, member: Member) -> None:
        self.happened["kill"] += 1
        member.end(signal.SIGKILL)
        self._remove(member)

    def _freeze(self, member: Member) -> None:
        self.happened["freeze"] += 1
        member.process.send_signal(signal.SIGSTOP)
        member.wakes_at = time.monotonic() + self._random.uniform(0.5, FROZEN_SECONDS_MAX)

    def _remove(self, member: Member) -> None:
        self.members.remove(member)
        self.gone.append(member)


class Feed:
    """Records at an even pace in a thread, and where each was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: set[tuple[int, int]] = set()
        self.failed: list[str] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        for number in itertools.count():
            if self._stop.wait(1 / RECORDS_PER_SECOND):
                return
            self.send(number % PARTITIONS)

    def send(self, partition: int) -> None:
        """One record."""
        self._producer.produce(TOPIC, b"x", partition=partition, on_delivery=self._delivered)
        self._producer.poll(0)

    def _delivered(self, error: object, message: Message) -> None:
        if error:
            self.failed.append(str(error))
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.acknowledged.add((partition, offset))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sends meanwhile; all is acknowledged afterwards."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()
            self.flush()

    def flush(self) -> None:
        """Waits for every acknowledgement."""
        assert self._producer.flush(30) == 0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Chronik]:
    """Sessions may be short here, so that a death is noticed while the test lasts."""
    chronik = Chronik(tmp_path, "--set=group.min.session.timeout.ms=1000")
    chronik.start()
    yield chronik
    assert chronik.running(), chronik.log_tail()
    chronik.stop()


def eventually(condition: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + CALM_SECONDS_MAX
    while not condition():
        assert time.monotonic() < limit, what
        time.sleep(0.2)


def chaos(group: Group, feed: Feed, rounds: Rounds) -> None:
    """One accident per second, then everybody wakes."""
    began = time.monotonic()
    for second in range(CHAOS_SECONDS):
        while time.monotonic() < began + second + 1:
            group.wake(time.monotonic())
            time.sleep(0.05)
        group.accident()
        if (second + 1) % ROUND_SECONDS == 0:
            done = ", ".join(f"{count} {what}" for what, count in sorted(group.happened.items()))
            read = sum(1 for _ in group.processed())
            rounds.told(f"so far {done}", acked=len(feed.acknowledged), processed=read)
    group.wake(float("inf"))


@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.parametrize("strategy", SPEAKS)
def test_every_record_is_processed_and_none_twice_in_a_generation(
    node: Chronik, tmp_path: Path, strategy: str
) -> None:
    rounds = Rounds(f"groups {strategy}", CHAOS_SECONDS // ROUND_SECONDS, SEED)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
    feed, group = Feed(node.bootstrap), Group(node.bootstrap, tmp_path, strategy, SEED)
    try:
        for _ in range(MEMBERS):
            group.join()
        with feed.running():
            chaos(group, feed, rounds)
        while len(group.members) < MEMBERS:
            group.join()
        check_nobody_is_stuck(group, feed)
        for member in group.gone:
            member.end(signal.SIGTERM)
    finally:
        group.close()
    check_once_per_generation(group)
    assert group.happened.keys() == {"join", "leave", "freeze", "kill"}
    processed = sum(1 for _ in group.processed())
    accidents = sum(group.happened.values())
    rounds.summary(accidents=accidents, acked=len(feed.acknowledged), processed=processed)


def check_nobody_is_stuck(group: Group, feed: Feed) -> None:
    """All records are processed, and each of the survivors gets some of the last ones."""

    def behind() -> set[tuple[int, int]]:
        return feed.acknowledged - {(part, offset) for _, (_, part, offset) in group.processed()}

    eventually(lambda: not behind(), "records were not processed")
    assert not feed.failed

    before = {member.name: len(member.processed()) for member in group.members}

    def idle() -> set[str]:
        for partition in range(PARTITIONS):
            feed.send(partition)
        feed.flush()
        return {one.name for one in group.members if len(one.processed()) == before[one.name]}

    eventually(lambda: not idle(), "a member is stuck")
    eventually(lambda: not behind(), "records were not processed")


def check_once_per_generation(group: Group) -> None:
    by: dict[Processed, str] = {}
    for member, one in group.processed():
        other = by.setdefault(one, member.name)
        assert other is member.name, f"{one} was processed by {other} and by {member.name}"
    counts = Counter(one for _, one in group.processed())
    assert not [one for one, count in counts.items() if count > 1], "twice by one member"
