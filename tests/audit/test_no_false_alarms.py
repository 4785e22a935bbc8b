"""A correct broker in small: whatever it and its clients may do, the verdict is ok.

Transactions commit, abort or end unknown; sends fail or time out; consumers seek, restart and
rebalance; retention and compaction take records away. None of it is an anomaly.
"""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.audit.anomaly import Level
from chronik.audit.rows import Kind, Outcome, Row
from chronik.audit.verdict import judge

PARTITIONS = 2
KEYS = 4


@dataclass(slots=True)
class Record:
    offset: int
    send: Row
    visible: bool


@dataclass(slots=True)
class Partition:
    records: list[Record] = field(default_factory=list)
    start: int = 0
    end: int = 0


class World:
    """The truth of the logs on one side, the rows that clients write down on the other."""

    def __init__(self, seed: int, *, compact: bool) -> None:
        self.rng = random.Random(seed)
        self.rows: list[Row] = []
        self.logs = [Partition() for _ in range(PARTITIONS)]
        self.now_ns = 0
        self.sequences = {"p0": 0, "p1": 0}
        self.transactions = {"p0": 0, "p1": 0}
        self.places: dict[tuple[str, int], int] = {}
        self.owner = dict.fromkeys(range(PARTITIONS), "c0")
        self.polls = 0
        self.compacts = compact
        if compact:
            self.rows.append(Row(Kind.TOPIC, topic="t", detail="cleanup.policy=compact"))
        for producer in self.sequences:
            self.rows.append(Row(Kind.CLIENT, producer, detail="idempotent=true"))
        for partition in range(PARTITIONS):
            self.move("c0", partition, 0, "rebalance")

    def tick(self) -> int:
        self.now_ns += 1
        return self.now_ns

    def append(self, producer: str, transaction: int = -1) -> Record | None:
        """One send; returns what is in the log, if anything is."""
        number = self.rng.randrange(PARTITIONS)
        log = self.logs[number]
        chance = self.rng.random()
        outcome = Outcome.FAIL if chance < 0.05 else Outcome.INFO if chance < 0.15 else Outcome.OK
        written = outcome == Outcome.OK or (outcome == Outcome.INFO and self.rng.random() < 0.5)
        send = Row(
            Kind.SEND,
            producer,
            self.tick(),
            self.tick(),
            "t",
            number,
            log.end if outcome == Outcome.OK else -1,
            sequence=self.sequences[producer],
            checksum=self.rng.getrandbits(31),
            key=self.rng.randrange(KEYS) if self.compacts else -1,
            outcome=outcome,
            transaction=transaction,
        )
        self.sequences[producer] += 1
        self.rows.append(send)
        if not written:
            return None
        record = Record(log.end, send, visible=transaction < 0)
        log.records.append(record)
        log.end += 1
        return record

    def transact(self) -> None:
        """Two producers interleave; each transaction ends with a control record per partition."""
        open_ones: dict[str, list[Record]] = {"p0": [], "p1": []}
        for producer in open_ones:
            self.transactions[producer] += 1
        for _ in range(self.rng.randrange(1, 8)):
            producer = self.rng.choice(("p0", "p1"))
            record = self.append(producer, self.transactions[producer])
            if record:
                open_ones[producer].append(record)
        for producer, records in open_ones.items():
            committed = self.rng.random() < 0.6
            unknown = self.rng.random() < 0.2
            for record in records:
                record.visible = committed
            for number in {record.send.partition for record in records}:
                self.logs[number].end += 1
            known = Outcome.OK if committed else Outcome.FAIL
            outcome = Outcome.INFO if unknown else known
            number = self.transactions[producer]
            self.rows.append(Row(Kind.TRANSACTION, producer, transaction=number, outcome=outcome))

    def move(self, consumer: str, partition: int, position: int, how: str) -> None:
        kind = Kind.SEEK if how == "seek" else Kind.ASSIGN
        detail = how if how == "rebalance" else ""
        row = Row(kind, consumer, topic="t", partition=partition, position=position, detail=detail)
        self.rows.append(row)
        self.places[consumer, partition] = position

    def poll(self, consumer: str, partition: int, limit: int) -> None:
        self.polls += 1
        log = self.logs[partition]
        position = max(self.places[consumer, partition], log.start)
        found = [r for r in log.records if r.offset >= position and r.visible][:limit]
        for record in found:
            self.rows.append(
                Row(
                    Kind.RECORD,
                    consumer,
                    end_ns=self.tick(),
                    topic="t",
                    partition=partition,
                    offset=record.offset,
                    sender=record.send.process,
                    sequence=record.send.sequence,
                    checksum=record.send.checksum,
                    key=record.send.key,
                    outcome=Outcome.OK,
                    poll=self.polls,
                )
            )
        self.places[consumer, partition] = found[-1].offset + 1 if found else log.end

    def disturb(self) -> None:
        """A consumer's place changes on purpose."""
        partition = self.rng.randrange(PARTITIONS)
        owner = self.owner[partition]
        how = self.rng.choice(("seek", "assign", "rebalance", "rebalance"))
        position = self.rng.randrange(self.places[owner, partition] + 1)
        if how == "rebalance":
            self.rows.append(Row(Kind.REVOKE, owner, topic="t", partition=partition))
            owner = self.owner[partition] = self.rng.choice(("c0", "c1"))
        self.move(owner, partition, position, how)

    def expire(self) -> None:
        log = self.rng.choice(self.logs)
        log.start = self.rng.randrange(log.start, log.end + 1)
        log.records = [record for record in log.records if record.offset >= log.start]

    def clean(self) -> None:
        """Compaction keeps the newest visible record of each key, and drops aborted data."""
        if not self.compacts:
            return
        for log in self.logs:
            newest = {r.send.key: r.offset for r in log.records if r.visible}
            log.records = [r for r in log.records if newest.get(r.send.key) == r.offset]

    def finish(self) -> None:
        for number, log in enumerate(self.logs):
            self.move("final", number, log.start, "assign")
            self.poll("final", number, 1 << 30)
            end = Row(Kind.LOG, "final", topic="t", partition=number, position=log.start)
            self.rows.append(end._replace(offset=log.end))

    def step(self) -> None:
        action = self.rng.choices(
            ("append", "transact", "poll", "disturb", "expire", "clean"),
            weights=(6, 3, 6, 2, 0.5, 1),
        )[0]
        if action == "append":
            self.append(self.rng.choice(("p0", "p1")))
        elif action == "poll":
            partition = self.rng.randrange(PARTITIONS)
            self.poll(self.owner[partition], partition, self.rng.randrange(1, 5))
        else:
            getattr(self, action)()


@settings(max_examples=60)
@given(seed=st.integers(0, 1_000_000), steps=st.integers(0, 120), compact=st.booleans())
def test_a_correct_broker_raises_no_alarm(seed: int, steps: int, *, compact: bool) -> None:
    world = World(seed, compact=compact)
    for _ in range(steps):
        world.step()
    world.finish()
    verdict = judge(world.rows)
    assert [found for found in verdict.anomalies if found.level == Level.FAIL] == []


def alarms(world: World) -> list[str]:
    world.finish()
    return [found.name for found in judge(world.rows).anomalies if found.level == Level.FAIL]


def filled(seed: int, *, compact: bool = False) -> World:
    world = World(seed, compact=compact)
    for _ in range(40):
        world.append("p0")
        world.append("p1")
    return world


def read_some(world: World) -> None:
    for partition in range(PARTITIONS):
        world.poll(world.owner[partition], partition, 10)


@pytest.mark.parametrize("seed", range(20))
def test_aborted_transactions_raise_no_alarm(seed: int) -> None:
    world = filled(seed)
    for _ in range(10):
        world.transact()
        read_some(world)
    assert any(row.outcome == Outcome.FAIL for row in world.rows if row.kind == Kind.TRANSACTION)
    assert alarms(world) == []


@pytest.mark.parametrize("seed", range(20))
def test_compaction_raises_no_alarm(seed: int) -> None:
    world = filled(seed, compact=True)
    read_some(world)
    before = sum(len(log.records) for log in world.logs)
    world.clean()
    assert sum(len(log.records) for log in world.logs) < before
    assert alarms(world) == []


@pytest.mark.parametrize("seed", range(20))
def test_retention_raises_no_alarm(seed: int) -> None:
    world = filled(seed)
    read_some(world)
    for log in world.logs:  # far beyond what anybody has read
        log.start = log.end - 5
        log.records = [record for record in log.records if record.offset >= log.start]
    assert alarms(world) == []


@pytest.mark.parametrize("how", ["rebalance", "seek", "assign"])
@pytest.mark.parametrize("seed", range(10))
def test_rebalances_seeks_and_restarts_raise_no_alarm(seed: int, how: str) -> None:
    world = filled(seed)
    for back in (5, 12, 0):
        read_some(world)
        for partition in range(PARTITIONS):
            owner = world.owner[partition]
            place = max(0, world.places[owner, partition] - back)
            if how == "rebalance":
                world.rows.append(Row(Kind.REVOKE, owner, topic="t", partition=partition))
                owner = world.owner[partition] = "c1" if owner == "c0" else "c0"
            world.move(owner, partition, place, how)
    assert alarms(world) == []


@pytest.mark.parametrize("seed", range(10))
def test_a_producer_that_restarts_as_another_raises_no_alarm(seed: int) -> None:
    """What the one that died had in flight is of unknown end."""
    world = filled(seed)
    world.rows = [
        row._replace(outcome=Outcome.INFO, offset=-1)
        if row.kind == Kind.SEND and row.process == "p0" and row.sequence >= 35
        else row
        for row in world.rows
    ]
    world.sequences["p2"] = 0
    for _ in range(10):
        world.append("p2")
    assert alarms(world) == []
