"""The group failures of FAILURE_MODES.md, one by one; the scenarios tell the same as stories."""

import pytest
from tests.groups.clients import REBALANCE_MS, SESSION_MS, join_command
from tests.groups.driver import Driver

from chronik.groups.commands import (
    Command,
    DeleteGroup,
    Heartbeat,
    ListGroups,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    SyncGroup,
)
from chronik.groups.config import GroupConfig
from chronik.groups.group import GroupState
from chronik.groups.responses import (
    DeleteGroupResponse,
    FetchedOffset,
    HeartbeatResponse,
    JoinGroupResponse,
    ListedGroup,
    ListGroupsResponse,
    OffsetCommitResponse,
    OffsetFetchResponse,
    PartitionResult,
    Response,
    SyncGroupResponse,
)
from chronik.model.errors import ErrorCode

GROUP = "billing"


def new_driver(*, hold: bool = False) -> Driver:
    return Driver(GroupConfig(initial_rebalance_delay_ms=0), hold=hold)


def ask(driver: Driver, command: Command) -> Response:
    """The only reply to a command that is answered at once."""
    driver.step(command, "asked")
    (reply,) = driver.take_replies()
    assert reply.reply_to == "asked"
    return reply.response


def answers(driver: Driver) -> dict[object, Response]:
    return {reply.reply_to: reply.response for reply in driver.take_replies()}


def joined(driver: Driver, *names: str) -> dict[str, JoinGroupResponse]:
    """A generation of these clients."""
    for name in names:
        driver.step(join_command(GROUP, name, "", version=3), name)
    driver.advance(1)
    replies = answers(driver)
    found = {n: r for n in names if isinstance(r := replies[n], JoinGroupResponse)}
    assert all(response.error is ErrorCode.NONE for response in found.values())
    return found


def stable(driver: Driver, *names: str) -> dict[str, str]:
    """Member ids of a group whose members have their assignment."""
    ids = {name: response.member_id for name, response in joined(driver, *names).items()}
    shares = tuple((member, name.encode()) for name, member in ids.items())
    for name in names:
        driver.step(SyncGroup(GROUP, ids[name], 1, shares if name == names[0] else ()), name)
    driver.take_replies()
    return ids


def commit_of(offset: int) -> OffsetCommit:
    return OffsetCommit(GROUP, (OffsetToCommit("orders", 0, offset),))


def test_fm10_sync_answers_protocol_type_and_name() -> None:
    driver = new_driver()
    member = joined(driver, "a")["a"].member_id
    command = SyncGroup(GROUP, member, 1, ((member, b"p0"),), None, "consumer", "range")
    assert ask(driver, command) == SyncGroupResponse(ErrorCode.NONE, "consumer", "range", b"p0")


def test_fm10_commit_and_fetch_answer_every_partition() -> None:
    driver = new_driver()
    offsets = tuple(OffsetToCommit("orders", p, 10 + p, 4, "note") for p in range(3))
    results = tuple(PartitionResult("orders", p, ErrorCode.NONE) for p in range(3))
    assert ask(driver, OffsetCommit(GROUP, offsets)) == OffsetCommitResponse(results)
    fetch = OffsetFetch(GROUP, (("orders", (2, 9)), ("other", (0,))))
    assert ask(driver, fetch) == OffsetFetchResponse(
        ErrorCode.NONE,
        (
            FetchedOffset("orders", 2, 12, 4, "note"),
            FetchedOffset("orders", 9),
            FetchedOffset("other", 0),
        ),
    )
    everything = ask(driver, OffsetFetch(GROUP))
    assert isinstance(everything, OffsetFetchResponse)
    assert [p.offset for p in everything.partitions] == [10, 11, 12]


def test_fm64_first_join_of_an_unknown_group_is_answered_and_leads() -> None:
    driver = new_driver()
    told = ask(driver, join_command(GROUP, "a", ""))
    assert told == JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, "a-1")
    driver.step(join_command(GROUP, "a", "a-1"), "again")
    driver.advance(1)
    response = answers(driver)["again"]
    assert isinstance(response, JoinGroupResponse)
    assert (response.error, response.leader, response.generation_id) == (ErrorCode.NONE, "a-1", 1)
    assert [m.member_id for m in response.members] == ["a-1"]


def test_fm64_an_unknown_member_of_an_unknown_group_makes_no_group() -> None:
    driver = new_driver()
    told = ask(driver, join_command(GROUP, "a", "a-9"))
    assert told == JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID, "a-9")
    assert not driver.coordinator.groups


def test_fm65_rebalance_waits_for_all_and_the_assignment_reaches_all() -> None:
    driver = new_driver()
    ids = stable(driver, "a", "b", "c")
    driver.step(join_command(GROUP, "d", "", version=3), "d")
    for name in ("a", "b"):
        driver.step(join_command(GROUP, name, ids[name]), name)
    assert not driver.replies
    driver.step(join_command(GROUP, "c", ids["c"]), "c")
    told = answers(driver)
    assert set(told) == {"a", "b", "c", "d"}
    for name in ("b", "c", "d"):
        response = told[name]
        assert isinstance(response, JoinGroupResponse)
        driver.step(SyncGroup(GROUP, response.member_id, 2), name)
    assert not driver.replies
    leader = told["a"]
    assert isinstance(leader, JoinGroupResponse)
    shares = tuple((m.member_id, m.member_id.encode()) for m in leader.members)
    driver.step(SyncGroup(GROUP, ids["a"], 2, shares), "a")
    got = answers(driver)
    assert {
        name: r.assignment[:1] for name, r in got.items() if isinstance(r, SyncGroupResponse)
    } == {name: str(name).encode() for name in "abcd"}


def test_fm65_missing_members_are_dropped_when_the_rebalance_timeout_ends() -> None:
    driver = new_driver()
    ids = stable(driver, "a", "b")
    driver.step(join_command(GROUP, "a", ids["a"]), "a")
    for _ in range(REBALANCE_MS // 4_000):
        driver.step(Heartbeat(GROUP, ids["b"], 1), "beat")
        driver.advance(4_000)
    response = answers(driver)["a"]
    assert isinstance(response, JoinGroupResponse)
    assert [m.member_id for m in response.members] == [ids["a"]]
    told = ask(driver, Heartbeat(GROUP, ids["b"], 1))
    assert told == HeartbeatResponse(ErrorCode.UNKNOWN_MEMBER_ID)


def test_fm66_sync_race_with_a_dead_leader_ends() -> None:
    driver = new_driver()
    told = joined(driver, "leader", "b")
    driver.step(SyncGroup(GROUP, told["b"].member_id, 1), "b")
    driver.advance(SESSION_MS)
    assert answers(driver) == {"b": SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS)}


def test_fm67_simple_groups_are_listed_and_deleted_only_when_empty() -> None:
    driver = new_driver()
    ask(driver, commit_of(5))
    assert ask(driver, ListGroups()) == ListGroupsResponse(
        ErrorCode.NONE, (ListedGroup(GROUP, "", "Empty", "classic"),)
    )
    joined(driver, "a")
    told = ask(driver, DeleteGroup(GROUP))
    assert told == DeleteGroupResponse(ErrorCode.NON_EMPTY_GROUP)
    driver.advance(2 * SESSION_MS)
    assert ask(driver, DeleteGroup(GROUP)) == DeleteGroupResponse(ErrorCode.NONE)
    assert ask(driver, OffsetFetch(GROUP)) == OffsetFetchResponse(ErrorCode.NONE)
    told = ask(driver, DeleteGroup(GROUP))
    assert told == DeleteGroupResponse(ErrorCode.GROUP_ID_NOT_FOUND)


def test_fm68_no_committed_offset_is_lost_at_failover() -> None:
    driver = new_driver(hold=True)
    driver.step(commit_of(5), "five")
    driver.step(commit_of(6), "six")
    driver.commit_next()
    assert set(answers(driver)) == {"five"}
    driver.crash(keep=0)
    found = ask(driver, OffsetFetch(GROUP, (("orders", (0,)),)))
    assert found == OffsetFetchResponse(ErrorCode.NONE, (FetchedOffset("orders", 0, 5),))


def test_fm68_no_member_is_stuck_after_failover() -> None:
    driver = new_driver()
    ids = stable(driver, "a", "b")
    driver.crash()
    assert ask(driver, Heartbeat(GROUP, ids["a"], 1)) == HeartbeatResponse(ErrorCode.NONE)
    driver.advance(SESSION_MS)
    assert driver.coordinator.groups[GROUP].state is GroupState.EMPTY


@pytest.mark.parametrize("error", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_failed_append_moves_nothing_durable(error: ErrorCode) -> None:
    driver = new_driver()
    stable(driver, "a", "b")
    ask(driver, commit_of(5))
    before = driver.fold()
    driver.hold = True
    driver.step(commit_of(6), "six")
    driver.step(DeleteGroup(GROUP), "delete")
    while driver.queue:
        driver.fail_next(error)
    assert driver.coordinator.durable == before
