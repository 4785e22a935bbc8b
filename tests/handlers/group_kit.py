"""Group requests on a bare connection, which several test files send."""

from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode
from tests.clients.wire import Connection

NONE = ErrorCode.none
SUBSCRIPTION = b"\0\0" + b"\0\0\0\1\0\4read" + b"\xff\xff\xff\xff"
"""Version 0, one topic, no user data: Apache Kafka gives no answer to what it cannot read."""
PROTOCOLS = [{"name": "range", "metadata": SUBSCRIPTION}]
NewConnection = Callable[[], Connection]


def wait_for_coordinator(connection: Connection, group: str) -> None:
    for _ in range(1000):  # Apache Kafka makes its topic, and loads it, while clients ask again
        found = connection.ask("find_coordinator", 6, key_type=0, coordinator_keys=[group])
        if found.coordinators[0].error_code == NONE:
            fetched = connection.ask("offset_fetch", 5, group_id=group, topics=None)
            if fetched.error_code == NONE:
                return
    raise AssertionError("no coordinator")


def join(connection: Connection, group: str, version: int = 9, **more: Any) -> Any:
    """One JoinGroup; where the id comes first, a second one with it."""
    fields = {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "protocol_type": "consumer",
        "protocols": PROTOCOLS,
        **more,
    }
    answer = connection.ask("join_group", version, **fields)
    if answer.error_code == ErrorCode.member_id_required:
        answer = connection.ask("join_group", version, **{**fields, "member_id": answer.member_id})
    return answer


def sync(connection: Connection, group: str, member: Any, version: int = 5, **more: Any) -> Any:
    """The leader gives itself b"mine"."""
    fields = {
        "group_id": group,
        "generation_id": member.generation_id,
        "member_id": member.member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": member.member_id, "assignment": b"mine"}],
        **more,
    }
    return connection.ask("sync_group", version, **fields)


def stable(connection: Connection, group: str, **more: Any) -> Any:
    """A group with one member that has its assignment."""
    member = join(connection, group, **more)
    assert member.error_code == NONE
    assert sync(connection, group, member).error_code == NONE
    return member


def commit(
    connection: Connection,
    group: str,
    topics: dict[str, dict[int, int]],
    version: int = 9,
    **more: Any,
) -> dict[tuple[str, int], ErrorCode]:
    asked = [
        {
            "name": name,
            "partitions": [
                {
                    "partition_index": index,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "note",
                }
                for index, offset in offsets.items()
            ],
        }
        for name, offsets in topics.items()
    ]
    fields = {"generation_id_or_member_epoch": -1, "retention_time": -1, **more}
    answer = connection.ask("offset_commit", version, group_id=group, topics=asked, **fields)
    return {
        (found.name, one.partition_index): one.error_code
        for found in answer.topics
        for one in found.partitions
    }


def committed(connection: Connection, group: str) -> dict[tuple[str, int], tuple[int, str]]:
    (found,) = connection.ask(
        "offset_fetch", 9, groups=[{"group_id": group, "topics": None}]
    ).groups
    assert found.error_code == NONE
    return {
        (each.name, one.partition_index): (one.committed_offset, one.metadata)
        for each in found.topics
        for one in each.partitions
    }
