"""Whole clusters, delivered by hand: restarts, members, snapshots, what failure modes ask for."""

import itertools

import pytest
from tests.raft.cluster import Cluster

from chronik.raft.config import RaftConfig, ReadMode
from chronik.raft.messages import (
    AppendEntries,
    ConfChange,
    ConfChangeTransition,
    ConfChangeType,
    Entry,
    InstallSnapshot,
    MemberChange,
    Snapshot,
)
from chronik.raft.progress import Inflights, Progress, ProgressState
from chronik.raft.state import DropReason, ProposalDropped, Role


def add(node: int, kind: ConfChangeType = ConfChangeType.ADD_LEARNER) -> ConfChange:
    return ConfChange((MemberChange(kind, node),))


def test_fm39_a_node_that_was_down_catches_up_by_log_or_by_snapshot() -> None:
    cluster = Cluster((0, 1, 2))
    cluster.elect(0)
    cluster.isolate(1, 2)
    cluster.heal()
    cluster.isolate(2)
    cluster.propose(0, b"a", b"b")
    cluster.heal()
    cluster.tick(2, nodes=[0])
    assert cluster.members[2].applied == [b"a", b"b"]
    cluster.isolate(2)
    cluster.propose(0, b"c")
    cluster.members[0].take_snapshot()
    cluster.heal()
    cluster.tick(2, nodes=[0])
    assert cluster.members[2].applied == [b"a", b"b", b"c"]
    assert cluster.members[2].store.snapshot.index == cluster[0].snapshot_index


def test_fm40_nothing_is_applied_before_it_is_written() -> None:
    cluster = Cluster((0, 1, 2))
    cluster.elect(0)
    follower = cluster[1]
    entry = Entry(follower.term, 3, data=b"x")
    follower.step(AppendEntries(0, 1, follower.term, 2, 2, commit=3, entries=(entry,)))
    ready = follower.ready()
    assert ready.entries == ready.committed_entries == (entry,)
    assert ready.hard_state is not None
    assert ready.hard_state.commit == 3


def test_fm43_entries_are_applied_once_across_restarts() -> None:
    cluster = Cluster((0, 1, 2))
    cluster.elect(0)
    cluster.propose(0, b"a", b"b")
    for member in cluster.members.values():
        member.take_snapshot()
    cluster.propose(0, b"c")
    for member in cluster.members.values():
        member.restart()
    cluster.elect(1)
    cluster.propose(1, b"d")
    assert [member.applied for member in cluster.members.values()] == [[b"a", b"b", b"c", b"d"]] * 3


@pytest.mark.parametrize("order", list(itertools.permutations((0, 1, 2))))
def test_fm44_a_cold_start_in_any_order_elects_a_leader(order: tuple[int, ...]) -> None:
    cluster = Cluster((0, 1, 2))
    cluster.elect(0)
    cluster.propose(0, b"a")
    for member in cluster.members.values():
        member.restart()
    # The last one stays away for long: two are enough.
    cluster.isolate(order[2])
    for node in order[:2]:
        cluster.tick(5, nodes=[node])
    cluster.tick(40, nodes=order[:2])
    leaders = [node for node in order[:2] if cluster[node].role is Role.LEADER]
    assert len(leaders) == 1
    assert cluster.members[leaders[0]].applied == [b"a"]


def test_fm46_node_zero_leads_and_no_leader_is_none() -> None:
    cluster = Cluster((0, 1, 2))
    leaders = [cluster[1].leader]
    with pytest.raises(ProposalDropped) as dropped:
        cluster[1].propose(b"x")
    assert dropped.value.reason is DropReason.NO_LEADER
    cluster.elect(0)
    assert [*leaders, cluster[1].leader] == [None, 0]
    cluster.propose(1, b"x")
    assert cluster.members[2].applied == [b"x"]


def test_fm47_a_wiped_node_rejoins_by_removal_and_addition() -> None:
    cluster = Cluster((0, 1, 2))
    cluster.elect(0)
    cluster.propose(0, b"a")
    cluster.add(2)
    for change in (add(2, ConfChangeType.REMOVE), add(2), add(2, ConfChangeType.ADD_VOTER)):
        cluster[0].propose_conf_change(change)
        cluster.settle()
    assert cluster.members[2].applied == [b"a"]
    assert cluster[2].conf_state.voters == (0, 1, 2)


def test_a_follower_that_lost_its_log_is_asked_once_per_heartbeat() -> None:
    # At the speed of the network this would be a storm of messages that never ends.
    cluster = Cluster((0, 1, 2))
    cluster.elect(0)
    cluster.propose(0, b"a")
    cluster.add(2)
    cluster.tick(20, nodes=[0])
    cluster[0].tick()
    sent = [event for event in cluster.turns() if isinstance(event, AppendEntries)]
    assert len(sent) <= 1


def test_a_snapshot_that_comes_while_entries_are_applied_brings_its_members() -> None:
    cluster = Cluster((0, 1, 2))
    cluster.elect(0)
    cluster.isolate(2)
    cluster.heal()
    cluster[0].propose_conf_change(add(7))
    cluster.process(0)
    cluster.deliver(lambda message: message.to != 2)
    cluster.process(1)
    cluster.deliver(lambda message: message.to == 0)
    cluster.process(0)
    cluster.deliver(lambda message: message.to == 2)
    # Node 2 is about to apply the change when a snapshot of a later state arrives.
    node = cluster[2]
    ready = node.ready()
    assert [entry.index for entry in ready.committed_entries] == [3]
    later = Snapshot(9, node.term, cluster.conf_state, b"later")
    node.step(InstallSnapshot(0, 2, node.term, later))
    cluster.members[2].store.save(ready)
    node.advance(ready)
    assert node.conf_state == cluster.conf_state
    cluster.members[2].process()
    assert (node.applied, node.conf_state) == (9, cluster.conf_state)


def test_entries_replaced_while_they_are_written_are_written_again() -> None:
    cluster = Cluster((0, 1, 2), pre_vote=False, check_quorum=False)
    cluster.elect(0)
    node = cluster[2]
    node.step(AppendEntries(0, 2, 2, 2, 2, commit=2, entries=(Entry(2, 3), Entry(2, 4))))
    ready = node.ready()
    node.step(AppendEntries(1, 2, 3, 3, 2, commit=2, entries=(Entry(3, 4),)))
    cluster.members[2].store.save(ready)
    node.advance(ready)
    again = node.ready()
    assert again.entries[-1] == Entry(3, 4)
    cluster.members[2].store.save(again)
    assert [entry.term for entry in cluster.members[2].store.entries] == [2, 2, 3]


def test_a_joint_change_replaces_all_but_one_voter_at_once() -> None:
    cluster = Cluster((0, 1, 2))
    cluster.elect(0)
    for node in (3, 4):
        cluster.add(node)
        cluster[0].propose_conf_change(add(node))
        cluster.settle()
    swap = tuple(MemberChange(ConfChangeType.ADD_VOTER, node) for node in (3, 4)) + tuple(
        MemberChange(ConfChangeType.REMOVE, node) for node in (1, 2)
    )
    cluster[0].propose_conf_change(ConfChange(swap, ConfChangeTransition.JOINT_IMPLICIT))
    cluster.settle()
    assert [cluster[node].conf_state.voters for node in (0, 3, 4)] == [(0, 3, 4)] * 3
    cluster.isolate(1, 2)
    cluster.propose(0, b"after")
    assert cluster.members[4].applied == [b"after"]


def test_6_an_election_in_a_joint_configuration_needs_both_majorities() -> None:
    cluster = Cluster((0, 1, 2), learners=(3, 4), check_quorum=False)
    cluster.elect(0)
    swap = tuple(MemberChange(ConfChangeType.ADD_VOTER, node) for node in (3, 4)) + tuple(
        MemberChange(ConfChangeType.REMOVE, node) for node in (1, 2)
    )
    cluster[0].propose_conf_change(ConfChange(swap, ConfChangeTransition.JOINT_EXPLICIT))
    cluster.settle()
    assert cluster[3].conf_state.voters_outgoing == (0, 1, 2)
    # All of the incoming voters, and one of three outgoing ones.
    cluster.isolate(1, 2)
    cluster[3].campaign()
    cluster.settle()
    roles = [cluster[3].role]
    cluster.heal()
    cluster.isolate(2)
    cluster[3].campaign()
    cluster.settle()
    assert [*roles, cluster[3].role] == [Role.PRE_CANDIDATE, Role.LEADER]


def test_an_unreported_snapshot_result_is_used_when_it_comes() -> None:
    cluster = Cluster((0, 1, 2))
    cluster.elect(0)
    progress = cluster[0].state.progress[1]
    progress.become_snapshot(2)
    cluster[0].report_snapshot(1, ok=False)
    assert (progress.state, progress.next, progress.is_paused) == (ProgressState.PROBE, 3, True)
    cluster[0].report_snapshot(1, ok=True)
    cluster.tick(1, nodes=[0])
    assert [one.state for one in cluster[0].state.progress.values()] == [
        ProgressState.REPLICATE
    ] * 3


def test_the_window_is_bounded_in_messages_and_in_bytes() -> None:
    window = Inflights(messages_max=2, bytes_max=100)
    window.add(5, 10)
    window.add(6, 10)
    full = [window.is_full]
    window.free_to(5)
    full.append(window.is_full)
    window.add(7, 95)
    full.append(window.is_full)
    window.free_to(7)
    assert [*full, window.is_full] == [True, False, True, False]


def test_a_refusal_that_is_out_of_date_changes_nothing() -> None:
    progress = Progress(10, Inflights(4, 100))
    assert not progress.step_back(rejected=5, hint=4)
    assert progress.step_back(rejected=9, hint=3)
    assert progress.next == 4
    progress.acknowledge(6)
    progress.become_replicate()
    assert not progress.step_back(rejected=6, hint=0)


@pytest.mark.parametrize(
    "options",
    [
        {"node_id": -1},
        {"node_id": 0, "heartbeat_ticks": 10},
        {"node_id": 0, "read_mode": ReadMode.LEASE, "check_quorum": False},
        {"node_id": 0, "inflight_messages_max": 0},
    ],
)
def test_a_configuration_that_cannot_work_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - which sentence it is does not matter
        RaftConfig(**options)  # type: ignore[arg-type]
