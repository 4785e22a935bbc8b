"""The group APIs on the wire, version by version; `--server kafka` proves them on Apache Kafka."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.clients.asking import metadata
from tests.clients.wire import Connection

from chronik.embedded import embedded

NONE = ErrorCode.none
SUBSCRIPTION = b"\0\0" + b"\0\0\0\1\0\4read" + b"\xff\xff\xff\xff"
"""Version 0, one topic, no user data: Apache Kafka gives no answer to what it cannot read."""
PROTOCOLS = [{"name": "range", "metadata": SUBSCRIPTION}]
NewConnection = Callable[[], Connection]


@pytest.fixture(scope="module")
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    if request.config.getoption("--server") == "kafka":
        yield request.getfixturevalue("server").port
        return
    with embedded(configs={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker.port


@pytest.fixture
def connect(port: int) -> Iterator[NewConnection]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Connection(port))


@pytest.fixture
def ask(connect: NewConnection) -> Callable[..., Any]:
    return connect().ask


@pytest.fixture
def group(connect: NewConnection) -> str:
    """A name nobody used, once its coordinator answers."""
    name = f"g-{uuid.uuid4().hex[:12]}"
    wait_for_coordinator(connect(), name)
    return name


@pytest.fixture
def topic(connect: NewConnection) -> str:
    name = f"t-{uuid.uuid4().hex[:12]}"
    asked = {"name": name, "num_partitions": 2, "replication_factor": 1}
    answer = connect().ask("create_topics", 7, topics=[asked], timeout=10_000)
    assert answer.topics[0].error_code == NONE
    return name


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


# ---- FindCoordinator


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_of_a_group_is_a_node_with_an_address(
    ask: Callable[..., Any], group: str, port: int, version: int
) -> None:
    answer = ask("find_coordinator", version, key=group, key_type=0, coordinator_keys=[group])
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.port) == (NONE, port)


def test_several_keys_get_several_answers(ask: Callable[..., Any], group: str) -> None:
    answer = ask("find_coordinator", 4, key_type=0, coordinator_keys=[group, "other"])
    assert [each.key for each in answer.coordinators] == [group, "other"]


@pytest.mark.parametrize("key_type", [2, 77])
def test_a_key_type_that_the_version_does_not_know_is_refused(
    ask: Callable[..., Any], key_type: int
) -> None:
    answer = ask("find_coordinator", 5, key_type=key_type, coordinator_keys=["a:b:1"])
    assert answer.coordinators[0].error_code == ErrorCode.invalid_request
    assert answer.coordinators[0].node_id == -1


@pytest.mark.chronik_only(reason="Kafka serves transactions")
@pytest.mark.parametrize(
    ("version", "code"),
    [
        (2, ErrorCode.transactional_id_authorization_failed),
        (6, ErrorCode.unsupported_version),
    ],
)
def test_transactional_producers_are_told_to_stop(
    ask: Callable[..., Any], version: int, code: ErrorCode
) -> None:
    answer = ask("find_coordinator", version, key="tx", key_type=1, coordinator_keys=["tx"])
    found = answer.coordinators[0] if version >= 4 else answer
    assert found.error_code == code
    assert "transactional.id" in found.error_message


# ---- JoinGroup, SyncGroup, Heartbeat, LeaveGroup


@pytest.mark.parametrize("version", range(10))
def test_fm64_the_first_member_leads_whatever_its_version(
    connect: NewConnection, group: str, version: int
) -> None:
    member = join(connect(), group, version)
    assert member.error_code == NONE
    assert (member.generation_id, member.leader) == (1, member.member_id)
    assert [each.metadata for each in member.members] == [SUBSCRIPTION]
    assert member.protocol_name == "range"


@pytest.mark.parametrize("version", [3, 4])
def test_from_version_4_on_a_member_first_learns_its_id(
    ask: Callable[..., Any], group: str, version: int
) -> None:
    answer = ask(
        "join_group",
        version,
        group_id=group,
        session_timeout=10_000,
        rebalance_timeout=10_000,
        protocol_type="consumer",
        protocols=PROTOCOLS,
    )
    expected = NONE if version < 4 else ErrorCode.member_id_required
    assert answer.error_code == expected
    assert answer.member_id.startswith("test-")  # the client id
    assert answer.protocol_name == ("" if version == 4 else "range")


def test_from_version_7_on_no_protocol_is_null(connect: NewConnection, group: str) -> None:
    answer = join(connect(), group, 7, session_timeout=1)
    assert answer.error_code == ErrorCode.invalid_session_timeout
    assert answer.protocol_name is None


@pytest.mark.parametrize("api", ["join_group", "sync_group", "heartbeat", "leave_group"])
def test_members_need_a_group_id(ask: Callable[..., Any], api: str) -> None:
    known = {"protocol_type": "consumer", "protocol_name": "range", "protocols": PROTOCOLS}
    answer = ask(api, 4, group_id="", session_timeout=10_000, **known)
    assert answer.error_code == ErrorCode.invalid_group_id


def test_a_restarted_static_leader_skips_the_assignment_from_version_9_on(
    connect: NewConnection, group: str
) -> None:
    first = stable(connect(), group, group_instance_id="static")
    again = join(connect(), group, 9, group_instance_id="static")
    assert (again.generation_id, again.skip_assignment) == (first.generation_id, True)
    old = join(connect(), group, 8, group_instance_id="static")
    assert (old.error_code, old.leader) == (NONE, again.member_id)
    assert not old.members
    fenced = connect().ask(
        "heartbeat",
        4,
        group_id=group,
        generation_id=1,
        member_id=first.member_id,
        group_instance_id="static",
    )
    assert fenced.error_code == ErrorCode.fenced_instance_id


@pytest.mark.parametrize("version", range(6))
def test_fm10_sync_answers_in_every_version(
    connect: NewConnection, group: str, version: int
) -> None:
    connection = connect()
    answer = sync(connection, group, join(connection, group), version)
    assert (answer.error_code, answer.assignment) == (NONE, b"mine")
    if version == 5:
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize(
    "wrong", [{"protocol_type": None}, {"protocol_name": None}, {"protocol_name": "other"}]
)
def test_fm10_sync_version_5_needs_the_right_protocol(
    connect: NewConnection, group: str, wrong: dict[str, Any]
) -> None:
    connection = connect()
    answer = sync(connection, group, join(connection, group), **wrong)
    assert answer.error_code == ErrorCode.inconsistent_group_protocol


def test_heartbeats_tell_what_is_wrong(connect: NewConnection, group: str) -> None:
    connection = connect()
    member = stable(connection, group)

    def beat(**other: Any) -> ErrorCode:
        fields = {"generation_id": member.generation_id, "member_id": member.member_id, **other}
        answer = connection.ask("heartbeat", 4, group_id=group, **fields)
        code: ErrorCode = answer.error_code
        return code

    assert beat() == NONE
    assert beat(generation_id=7) == ErrorCode.illegal_generation
    assert beat(member_id="who") == ErrorCode.unknown_member_id
    assert beat(group_instance_id="who") == ErrorCode.unknown_member_id


@pytest.mark.parametrize("version", [0, 2])
def test_before_version_3_the_only_member_s_error_is_the_answer(
    connect: NewConnection, group: str, version: int
) -> None:
    connection = connect()
    member = stable(connection, group)
    codes = [
        connection.ask("leave_group", version, group_id=group, member_id=who).error_code
        for who in ("who", member.member_id, member.member_id)
    ]
    assert codes == [ErrorCode.unknown_member_id, NONE, ErrorCode.unknown_member_id]


def test_several_members_leave_at_once(connect: NewConnection, group: str) -> None:
    connection = connect()
    stable(connection, group, group_instance_id="static")
    leaving = [
        {"member_id": "", "group_instance_id": "static"},
        {"member_id": "", "group_instance_id": "other"},
        {"member_id": "who"},
    ]
    answer = connection.ask("leave_group", 5, group_id=group, members=leaving)
    assert answer.error_code == NONE
    assert [(each.member_id, each.error_code) for each in answer.members] == [
        ("", NONE),
        ("", ErrorCode.unknown_member_id),
        ("who", ErrorCode.unknown_member_id),
    ]


# ---- offsets


@pytest.mark.parametrize("version", range(2, 10))
def test_fm10_offsets_come_back_whatever_the_version(
    connect: NewConnection, group: str, topic: str, version: int
) -> None:
    connection = connect()
    assert commit(connection, group, {topic: {0: 5, 1: 6}}, version) == {
        (topic, 0): NONE,
        (topic, 1): NONE,
    }
    assert committed(connection, group) == {(topic, 0): (5, "note"), (topic, 1): (6, "note")}


def test_partitions_that_do_not_exist_are_refused_and_the_others_stored(
    connect: NewConnection, group: str, topic: str
) -> None:
    connection = connect()
    unknown = ErrorCode.unknown_topic_or_partition
    assert commit(connection, group, {topic: {0: 5, 9: 6, -1: 1}, "nowhere": {0: 1}}) == {
        (topic, 0): NONE,
        (topic, 9): unknown,
        (topic, -1): unknown,
        ("nowhere", 0): unknown,
    }
    assert committed(connection, group) == {(topic, 0): (5, "note")}


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.illegal_generation), (9, ErrorCode.group_id_not_found)]
)
def test_a_member_of_an_unknown_group_is_told_in_its_version_s_words(
    connect: NewConnection, group: str, topic: str, version: int, code: ErrorCode
) -> None:
    more = {"generation_id_or_member_epoch": 1, "member_id": "who"}
    assert commit(connect(), group, {topic: {0: 1}}, version, **more) == {(topic, 0): code}


def test_strangers_do_not_commit_for_a_group_with_members(
    connect: NewConnection, group: str, topic: str
) -> None:
    connection = connect()
    member = stable(connection, group)
    refused = commit(connection, group, {topic: {0: 1}})
    assert refused == {(topic, 0): ErrorCode.unknown_member_id}
    more = {"generation_id_or_member_epoch": 1, "member_id": member.member_id}
    assert commit(connection, group, {topic: {0: 1}}, **more) == {(topic, 0): NONE}


def test_an_empty_group_id_may_keep_offsets(connect: NewConnection, group: str, topic: str) -> None:
    connection = connect()
    wait_for_coordinator(connection, "")
    assert commit(connection, "", {topic: {0: 5}}) == {(topic, 0): NONE}
    assert committed(connection, "")[topic, 0] == (5, "note")


def test_metadata_longer_than_allowed_is_refused(
    connect: NewConnection, group: str, topic: str
) -> None:
    parts = [
        {"partition_index": index, "committed_offset": 1, "committed_metadata": "x" * size}
        for index, size in enumerate((4096, 4097))
    ]
    answer = connect().ask(
        "offset_commit",
        8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[{"name": topic, "partitions": parts}],
    )
    codes = [each.error_code for each in answer.topics[0].partitions]
    assert codes == [NONE, ErrorCode.offset_metadata_too_large]


def test_from_version_10_on_topics_go_by_their_ids(
    connect: NewConnection, group: str, topic: str
) -> None:
    connection = connect()
    known, unknown = metadata(connection, topic).topics[0].topic_id, uuid.uuid4()
    parts = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    answer = connection.ask(
        "offset_commit",
        10,
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[{"topic_id": each, "partitions": parts} for each in (known, unknown)],
    )
    codes = {each.topic_id: each.partitions[0].error_code for each in answer.topics}
    assert codes == {known: NONE, unknown: ErrorCode.unknown_topic_id}
    asked = [{"topic_id": each, "partition_indexes": [0, 1]} for each in (known, unknown)]
    groups = [{"group_id": group, "topics": asked}, {"group_id": group, "topics": None}]
    some, everything = connection.ask("offset_fetch", 10, groups=groups).groups
    found = {
        (each.topic_id, one.partition_index): (one.committed_offset, one.error_code)
        for each in some.topics
        for one in each.partitions
    }
    no_topic = (-1, ErrorCode.unknown_topic_id)
    assert found == {
        (known, 0): (5, NONE),
        (known, 1): (-1, NONE),
        (unknown, 0): no_topic,
        (unknown, 1): no_topic,
    }
    assert [each.topic_id for each in everything.topics] == [known]


@pytest.mark.parametrize("version", range(1, 8))
def test_fm10_every_partition_asked_for_is_answered(
    connect: NewConnection, group: str, topic: str, version: int
) -> None:
    connection = connect()
    commit(connection, group, {topic: {1: 7}})
    asked = [
        {"name": topic, "partition_indexes": [0, 1]},
        {"name": "nowhere", "partition_indexes": [3]},
    ]
    answer = connection.ask("offset_fetch", version, group_id=group, topics=asked)
    found = {
        (each.name, one.partition_index): (one.committed_offset, one.error_code)
        for each in answer.topics
        for one in each.partitions
    }
    nothing = (-1, NONE)
    assert found == {(topic, 0): nothing, (topic, 1): (7, NONE), ("nowhere", 3): nothing}


def test_offsets_of_topics_that_nobody_reads_are_deleted(
    connect: NewConnection, group: str, topic: str
) -> None:
    connection = connect()

    def delete(name: str, *indexes: int) -> Any:
        parts = [{"partition_index": index} for index in indexes]
        asked = [{"name": name, "partitions": parts}]
        return connection.ask("offset_delete", 0, group_id=group, topics=asked)

    assert delete(topic, 0).error_code == ErrorCode.group_id_not_found
    commit(connection, group, {topic: {0: 5, 1: 6}})
    answer = delete(topic, 0, 9)
    assert answer.error_code == NONE
    codes = {one.partition_index: one.error_code for one in answer.topics[0].partitions}
    assert codes == {0: NONE, 9: ErrorCode.unknown_topic_or_partition}
    assert committed(connection, group) == {(topic, 1): (6, "note")}


def test_offsets_without_a_group_cannot_be_deleted(ask: Callable[..., Any]) -> None:
    answer = ask("offset_delete", 0, group_id="", topics=[])
    assert answer.error_code == ErrorCode.invalid_group_id


# ---- administration


def test_fm67_groups_are_listed_by_state_and_type(
    connect: NewConnection, group: str, topic: str
) -> None:
    connection = connect()
    stable(connection, group)
    simple = f"{group}-simple"
    commit(connection, simple, {topic: {0: 1}})

    def listed(**filters: Any) -> dict[str, tuple[str, str, str]]:
        answer = connection.ask("list_groups", 5, **filters)
        assert answer.error_code == NONE
        return {
            each.group_id: (each.group_state, each.group_type, each.protocol_type)
            for each in answer.groups
            if each.group_id.startswith(group)
        }

    members, offsets_only = ("Stable", "classic", "consumer"), ("Empty", "classic", "")
    assert listed() == {group: members, simple: offsets_only}
    assert listed(states_filter=["stable"]) == {group: members}
    assert listed(states_filter=["Empty", "Dead"]) == {simple: offsets_only}
    assert listed(types_filter=["Classic"]) == listed()
    assert listed(types_filter=["consumer"]) == {}
    old = connection.ask("list_groups", 0).groups
    assert {group, simple} <= {each.group_id for each in old}


def test_a_group_is_described_with_its_members(connect: NewConnection, group: str) -> None:
    connection = connect()
    member = stable(connection, group, group_instance_id="static")
    (found,) = connection.ask("describe_groups", 6, groups=[group]).groups
    assert (found.error_code, found.group_state) == (NONE, "Stable")
    assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
    (one,) = found.members
    assert (one.member_id, one.group_instance_id) == (member.member_id, "static")
    assert (one.client_id, one.client_host) == ("test", "/127.0.0.1")
    assert (one.member_metadata, one.member_assignment) == (SUBSCRIPTION, b"mine")


@pytest.mark.parametrize(
    ("version", "code", "message"),
    [(5, NONE, None), (6, ErrorCode.group_id_not_found, "Group nobody not found.")],
)
def test_an_unknown_group_is_dead_and_from_version_6_on_an_error(
    ask: Callable[..., Any], group: str, version: int, code: ErrorCode, message: str | None
) -> None:
    (found,) = ask("describe_groups", version, groups=["nobody"]).groups
    assert (found.error_code, found.group_state) == (code, "Dead")
    assert getattr(found, "error_message", None) == message


def test_fm67_only_empty_groups_are_deleted(connect: NewConnection, group: str, topic: str) -> None:
    connection = connect()
    member = stable(connection, group)
    names = [group, f"{group}-unknown", group]

    def delete(version: int) -> dict[str, ErrorCode]:
        answer = connection.ask("delete_groups", version, groups_names=names)
        return {each.group_id: each.error_code for each in answer.results}

    assert delete(2) == {
        group: ErrorCode.non_empty_group,
        f"{group}-unknown": ErrorCode.group_id_not_found,
    }
    connection.ask("leave_group", 5, group_id=group, members=[{"member_id": member.member_id}])
    commit(connection, group, {topic: {0: 1}})
    assert delete(0)[group] == NONE
    assert committed(connection, group) == {}
    assert delete(1)[group] == ErrorCode.group_id_not_found
