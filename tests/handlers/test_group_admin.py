"""Groups listed, described, deleted on the wire, version by version; try `--server kafka` too."""

from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.handlers.group_kit import (
    NONE,
    SUBSCRIPTION,
    NewConnection,
    commit,
    committed,
    stable,
)


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
