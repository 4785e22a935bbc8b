"""Coordinators and members on the wire, version by version; try `--server kafka` too."""

from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.handlers.group_kit import (
    NONE,
    PROTOCOLS,
    SUBSCRIPTION,
    NewConnection,
    join,
    stable,
    sync,
)

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
