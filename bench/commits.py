"""How long an offset commit takes: `python bench/commits.py [--durability os] [--commits N]`.

Members of groups on raw connections, each with one commit in flight; the answer counts when all of
it has arrived. A fresh node per row, on the project's own disk.
"""

import argparse
import selectors
import socket
import statistics
import struct
import time
from dataclasses import dataclass, field
from typing import Any, cast

from contestants import HOST, Chronik
from processes import cpu_seconds, say, wait_for_port

from chronik.wire.codec import decode, encode
from chronik.wire.headers import read_response_header, write_request_header
from chronik.wire.messages import create_topics, join_group, offset_commit, sync_group
from chronik.wire.schema import Message

JOIN_VERSION = 3  # the last one without a second round for the member id
COMMIT_VERSION = 8
PARTITIONS = 8
WARM_UP = 500


@dataclass
class Member:
    """A connection, its group and the latencies of its commits."""

    connection: socket.socket
    group: str
    generation: int = -1
    member_id: str = ""
    sent_at: float = 0.0
    took_ms: list[float] = field(default_factory=list)

    def send(self, request: Message, version: int) -> None:
        """Writes one request, does not wait."""
        frame = write_request_header(request.API_KEY, version, 1, "bench")
        frame += encode(request, version)
        self.connection.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self, request: Message, response: type[Message], version: int) -> Any:
        """The next answer, which may not have arrived yet."""
        (size,) = struct.unpack(">i", self._exactly(4))
        data = self._exactly(size)
        _, body = read_response_header(request.API_KEY, version, data)
        return decode(response, version, data, body)

    def _exactly(self, count: int) -> bytes:
        data = self.connection.recv(count, socket.MSG_WAITALL)
        if len(data) < count:
            raise ConnectionError("the node closed the connection")
        return data

    def ask(self, request: Message, response: type[Message], version: int) -> Any:
        """One request and its answer."""
        self.send(request, version)
        return self.receive(request, response, version)

    def join(self) -> None:
        """The only member of its group."""
        asked = join_group.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = self.ask(asked, join_group.JoinGroupResponse, JOIN_VERSION)
        self.generation, self.member_id = joined.generation_id, joined.member_id
        sync = sync_group.SyncGroupRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        synced = self.ask(sync, sync_group.SyncGroupResponse, 3)
        if joined.error_code or synced.error_code:
            raise RuntimeError(f"cannot join: errors {joined.error_code}, {synced.error_code}")

    def commit(self, offset: int) -> offset_commit.OffsetCommitRequest:
        """Positions on every partition of the topic, as a consumer commits them."""
        partitions = [
            offset_commit.OffsetCommitRequestPartition(index, committed_offset=offset)
            for index in range(PARTITIONS)
        ]
        return offset_commit.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[offset_commit.OffsetCommitRequestTopic(name="t", partitions=partitions)],
        )

    def begin(self, offset: int) -> None:
        """Sends a commit and looks at the clock."""
        self.send(self.commit(offset), COMMIT_VERSION)
        self.sent_at = time.perf_counter()

    def finish(self) -> None:
        """Takes its answer."""
        asked = offset_commit.OffsetCommitRequest
        (size,) = struct.unpack(">i", self._exactly(4))
        data = self._exactly(size)
        self.took_ms.append((time.perf_counter() - self.sent_at) * 1e3)
        _, body = read_response_header(asked.API_KEY, COMMIT_VERSION, data)
        answer = decode(offset_commit.OffsetCommitResponse, COMMIT_VERSION, data, body)
        if any(one.error_code for topic in answer.topics for one in topic.partitions):
            raise RuntimeError(f"commit refused: {answer}")


def members_of(port: int, count: int) -> list[Member]:
    """Connected and joined."""
    members = []
    for number in range(count):
        connection = socket.create_connection((HOST, port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        members.append(Member(connection, f"group-{number}"))
    topic = create_topics.CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
    request = create_topics.CreateTopicsRequest(topics=[topic])
    members[0].ask(request, create_topics.CreateTopicsResponse, 5)
    for member in members:
        member.join()
    return members


def run(members: list[Member], commits: int) -> float:
    """Commits per second of all members together."""
    waiting = selectors.DefaultSelector()
    for member in members:
        waiting.register(member.connection, selectors.EVENT_READ, member)
        member.took_ms.clear()
        member.begin(0)
    began, done = time.perf_counter(), 0
    while done < commits:
        for key, _ in waiting.select():
            member = cast("Member", key.data)
            member.finish()
            done += 1
            member.begin(done)
    took = time.perf_counter() - began
    for member in members:
        member.finish()
    return done / took


def measure(durability: str, count: int, commits: int) -> str:
    """One row."""
    with Chronik(durability).running() as (bootstrap, pids):
        port = int(bootstrap.rpartition(":")[2])
        wait_for_port(port)
        members = members_of(port, count)
        run(members, WARM_UP)
        cpu = cpu_seconds(pids)
        rate = run(members, commits)
        cpu = (cpu_seconds(pids) - cpu) / commits
        for member in members:
            member.connection.close()
    took = [ms for member in members for ms in member.took_ms]
    cuts = statistics.quantiles(took, n=1000)
    return (
        f"{durability:>6} {count:>11} {rate:>9.0f} {cuts[499]:>8.3f} {cuts[989]:>8.3f} "
        f"{cuts[998]:>8.3f} {max(took):>8.2f} {cpu * 1e6:>8.0f}"
    )


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--durability", action="append", choices=("os", "fsync"))
    parser.add_argument("--connections", type=int, action="append")
    parser.add_argument("--commits", type=int, default=10_000)
    asked = parser.parse_args()
    say("   how connections commits/s   p50 ms   p99 ms p99.9 ms   max ms   CPU us")
    for durability in asked.durability or ["os", "fsync"]:
        for count in asked.connections or [1, 8]:
            say(measure(durability, count, asked.commits))


if __name__ == "__main__":
    main()
