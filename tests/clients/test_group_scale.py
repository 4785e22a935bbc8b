"""Many groups on one node: what heartbeats cost, and how long an offset commit takes.

Long runs (`--soak`), on a quiet machine: 5,000 members take a quarter of a core at most, a commit a
millisecond at the 99th percentile.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.clients.wire import Connection, request_header
from tests.faults.nodes import Client, cpu_seconds
from tests.servers import Chronik

from chronik.wire.codec import decode, encode
from chronik.wire.messages.heartbeat import HeartbeatRequest
from chronik.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from chronik.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from chronik.wire.messages.sync_group import SyncGroupRequest

MEMBERS_PER_GROUP = 5
GROUPS_AT_A_TIME = 50
HEARTBEAT_SECONDS = 3.0
"""Kafka's default heartbeat.interval.ms."""
CPU_SHARE_MAX = 0.25
MEMBERS = 5_000
COMMIT_MS_P99_MAX = 1.0
STOLEN_MAX = 0.02
"""Of one processor, by the host: a round with more measures the host."""
COMMIT_VERSION = 8
JOIN_VERSION = 3  # the last one without a second round for the member id


@dataclass(frozen=True, slots=True)
class Member:
    """A connection that joined."""

    client: Client
    heartbeat: HeartbeatRequest


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Chronik]:
    chronik = Chronik(tmp_path, "--set=group.initial.rebalance.delay.ms=1000")
    chronik.start()
    yield chronik
    assert chronik.running(), chronik.log_tail()
    chronik.stop()


async def form(port: int, group: str) -> list[Member]:
    """Five members that are stable."""
    clients = [await Client.connect(port) for _ in range(MEMBERS_PER_GROUP)]
    return list(await asyncio.gather(*(enter(client, group) for client in clients)))


async def enter(client: Client, group: str) -> Member:
    """Joins until an assignment is had; the leader's one is empty, which is enough here."""
    member_id = ""
    for _ in range(10):
        asked = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined: JoinGroupResponse = await client.ask(asked, JOIN_VERSION)
        assert joined.error_code == 0
        member_id = joined.member_id
        generation = joined.generation_id
        sync = SyncGroupRequest(group_id=group, generation_id=generation, member_id=member_id)
        synced = await client.ask(sync, 3)
        if synced.error_code == 0:
            return Member(client, HeartbeatRequest(group, generation, member_id))
    raise AssertionError(f"group {group} does not become stable")


async def form_all(port: int, groups: int) -> list[Member]:
    members: list[Member] = []
    for first in range(0, groups, GROUPS_AT_A_TIME):
        names = [f"g{number}" for number in range(first, min(first + GROUPS_AT_A_TIME, groups))]
        for formed in await asyncio.gather(*(form(port, name) for name in names)):
            members += formed
    return members


async def beat(members: list[Member], rounds: int) -> None:
    """Every one must be answered without an error."""
    began = time.monotonic()
    for number in range(rounds):
        for index, member in enumerate(members):
            due = began + HEARTBEAT_SECONDS * (number + index / len(members))
            if due > time.monotonic():
                await asyncio.sleep(due - time.monotonic())
            if number:
                await check_beat(member)
            member.client.send(member.heartbeat, 4)
    for member in members:
        await check_beat(member)


async def check_beat(member: Member) -> None:
    answer = await member.client.receive(member.heartbeat, 4)
    assert answer.error_code in {0, 27}  # a rebalance goes on: somebody came late


async def close(members: list[Member]) -> None:
    for member in members:
        await member.client.close()
    await asyncio.sleep(0.05)  # the transports close in the next turns of the loop


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_heartbeats_of_five_thousand_members_take_a_quarter_of_a_core_at_most(
    node: Chronik, record_property: Callable[[str, object], None]
) -> None:
    groups, rounds = MEMBERS // MEMBERS_PER_GROUP, 5

    async def work() -> None:
        members = await form_all(node.port, groups)
        began = cpu_seconds(node.pid)
        await beat(members, rounds)
        each = (cpu_seconds(node.pid) - began) / (rounds * len(members))
        share = each * MEMBERS / HEARTBEAT_SECONDS
        record_property("cpu_share", share)
        print(f"heartbeat {each * 1e6:.1f} us of CPU, {share:.1%} of a core for {MEMBERS} members")  # noqa: T201
        await close(members)
        assert share < CPU_SHARE_MAX

    asyncio.run(work())


@pytest.mark.soak
def test_an_offset_commit_takes_less_than_a_millisecond(
    node: Chronik, record_property: Callable[[str, object], None]
) -> None:
    rounds, commits = 5, 10_000
    heartbeat = asyncio.run(one_member(node.port))
    began, p99s = cpu_seconds(node.pid), []
    for _ in range(rounds):
        start, stolen = time.monotonic(), stolen_s()
        cuts = statistics.quantiles(commit_ms(node.port, heartbeat, commits), n=100)
        taken = (stolen_s() - stolen) / (time.monotonic() - start)
        if taken < STOLEN_MAX:
            p99s.append(cuts[98])
        told = f"commit p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms; the host took {taken:.1%}"
        print(told)  # noqa: T201
    each = (cpu_seconds(node.pid) - began) / (rounds * commits)
    print(f"{each * 1e6:.0f} us of CPU")  # noqa: T201
    if not p99s:
        pytest.skip("the host took the processor away in every round: measure again")
    record_property("commit_ms_p99", statistics.median(p99s))
    assert statistics.median(p99s) < COMMIT_MS_P99_MAX


def stolen_s() -> float:
    """What the host of a virtual machine has taken from all its processors; it is in proc(5)."""
    ticks = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[8]
    return int(ticks) / os.sysconf("SC_CLK_TCK")


def commit_ms(port: int, heartbeat: HeartbeatRequest, commits: int) -> list[float]:
    """How long each took, one after the other."""
    took = []
    with Connection(port) as connection:
        for offset in range(commits):
            frame = commit_frame(heartbeat, offset)
            start = time.perf_counter()
            connection.send_frame(frame)
            answer = connection.read_frame()
            took.append((time.perf_counter() - start) * 1e3)
            (topic,) = decode(OffsetCommitResponse, COMMIT_VERSION, answer, 5).topics
            assert topic.partitions[0].error_code == 0
    return took


async def one_member(port: int) -> HeartbeatRequest:
    """A topic, a group and its member, whose session outlives the connection it joined by."""
    client = await Client.connect(port)
    await client.create("t")
    member = await enter(client, "g")
    await close([member])
    return member.heartbeat


def commit_frame(member: HeartbeatRequest, offset: int) -> bytes:
    """A whole request, made beforehand: what is timed is the server and a blocking socket."""
    partition = OffsetCommitRequestPartition(0, committed_offset=offset)
    asked = OffsetCommitRequest(
        group_id=member.group_id,
        generation_id_or_member_epoch=member.generation_id,
        member_id=member.member_id,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    header = request_header("offset_commit", COMMIT_VERSION, offset)
    return header + encode(asked, COMMIT_VERSION)
