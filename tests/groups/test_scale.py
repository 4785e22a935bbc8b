"""Large groups stay cheap: the work is counted, not timed."""

from tests.groups.clients import SESSION_MS, join_command
from tests.groups.driver import Driver

from chronik.groups.commands import Heartbeat, SyncGroup
from chronik.groups.config import GroupConfig
from chronik.groups.group import GroupState
from chronik.groups.responses import HeartbeatResponse, JoinGroupResponse
from chronik.model.errors import ErrorCode

GROUP = "large"
MEMBERS = 5_000


def large_group() -> tuple[Driver, list[str]]:
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=0))
    for number in range(MEMBERS):
        driver.step(join_command(GROUP, f"c{number}", "", version=3), number)
    driver.advance(1)
    replies = [reply.response for reply in driver.take_replies()]
    ids = [r.member_id for r in replies if isinstance(r, JoinGroupResponse)]
    for member_id in ids:
        driver.step(SyncGroup(GROUP, member_id, 1), member_id)
    driver.take_replies()
    assert driver.coordinator.groups[GROUP].state is GroupState.STABLE
    return driver, ids


def test_heartbeats_of_five_thousand_members_move_no_timer() -> None:
    driver, ids = large_group()
    heap = driver.coordinator._shard.timers._heap
    entries = list(heap)
    for _ in range(3):
        driver.now_ms += SESSION_MS // 4
        for member_id in ids:
            driver.step(Heartbeat(GROUP, member_id, 1), member_id)
    assert heap == entries
    alive = HeartbeatResponse(ErrorCode.NONE)
    assert all(reply.response == alive for reply in driver.take_replies())
    driver.advance(SESSION_MS - 1)
    assert driver.coordinator.groups[GROUP].state is GroupState.STABLE
    driver.advance(1)
    assert driver.coordinator.groups[GROUP].state is GroupState.EMPTY
