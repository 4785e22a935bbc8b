"""Whoever asks a node that does not coordinate the group is told so, by every API of groups."""

import asyncio
import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from chronik.broker.coordinators import CoordinatorError
from chronik.cluster.image import PartitionState, Topic
from chronik.handlers.call import Call, Peer
from chronik.handlers.table import TABLE
from chronik.model.errors import ErrorCode
from chronik.wire.apis import ApiKey
from chronik.wire.messages.delete_groups import DeleteGroupsRequest
from chronik.wire.messages.describe_groups import DescribeGroupsRequest
from chronik.wire.messages.heartbeat import HeartbeatRequest
from chronik.wire.messages.join_group import JoinGroupRequest
from chronik.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from chronik.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from chronik.wire.messages.offset_delete import OffsetDeleteRequest
from chronik.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from chronik.wire.messages.sync_group import SyncGroupRequest
from chronik.wire.schema import Message, Struct, fields_of

OFFSETS = [OffsetCommitRequestPartition(0, committed_offset=5)]
REQUESTS: dict[ApiKey, tuple[int, Message]] = {
    ApiKey.JOIN_GROUP: (5, JoinGroupRequest("g")),
    ApiKey.SYNC_GROUP: (3, SyncGroupRequest("g")),
    ApiKey.HEARTBEAT: (4, HeartbeatRequest("g", 1, "m")),
    ApiKey.LEAVE_GROUP: (4, LeaveGroupRequest("g", members=[MemberIdentity("m")])),
    ApiKey.OFFSET_COMMIT: (
        8,
        OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=OFFSETS)]),
    ),
    ApiKey.OFFSET_FETCH: (8, OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g")])),
    ApiKey.OFFSET_DELETE: (0, OffsetDeleteRequest("g")),
    ApiKey.DELETE_GROUPS: (2, DeleteGroupsRequest(["g"])),
    ApiKey.DESCRIBE_GROUPS: (5, DescribeGroupsRequest(["g"])),
}


class Elsewhere:
    """No group is coordinated here."""

    def submit_now(self, _command: object) -> None:
        return None

    answer_now = submit_now

    async def submit(self, _group_id: str, _command: object) -> None:
        raise CoordinatorError(ErrorCode.NOT_COORDINATOR)


def codes(value: Any, version: int) -> Iterator[int]:
    """Every error code of an answer, however deep."""
    if isinstance(value, list):
        for one in value:
            yield from codes(one, version)
    elif isinstance(value, Struct):
        for field in fields_of(type(value), version):
            if field.name == "error_code":
                yield getattr(value, field.name)
            else:
                yield from codes(getattr(value, field.name), version)


@pytest.mark.parametrize("key", REQUESTS, ids=lambda key: key.name)
def test_no_answer_of_a_node_that_does_not_coordinate_looks_like_a_success(key: ApiKey) -> None:
    version, request = REQUESTS[key]
    topic = Topic(b"t" * 16, "t", (PartitionState((1,), (1,), leader=1, leader_epoch=1),))
    image = SimpleNamespace(topics={"t": topic}, topic_names={topic.id: "t"})
    broker: Any = SimpleNamespace(coordinators=Elsewhere(), controller=SimpleNamespace(image=image))
    call = Call(bytearray(), Peer("", 0, "", 0), 0, lambda _: None, lambda: None)
    call.api_version = version
    handle = TABLE[key].handle
    assert handle is not None
    outcome: Any = handle(broker, call, request)

    async def answer() -> Any:
        return await outcome if inspect.isawaitable(outcome) else outcome

    found = asyncio.run(answer())
    assert ErrorCode.NOT_COORDINATOR in set(codes(found, version)), found
