"""The rules of the Raft paper, section by section. Messages are handed over one at a time."""

import pytest
from tests.raft.cluster import Cluster, MemoryStore

from chronik.raft.codec import encode_conf_change
from chronik.raft.config import RaftConfig, ReadMode
from chronik.raft.core import RaftNode
from chronik.raft.log import LogDamaged
from chronik.raft.messages import (
    AppendEntries,
    AppendResponse,
    ConfChange,
    ConfState,
    Entry,
    EntryType,
    HardState,
    Heartbeat,
    InstallSnapshot,
    RequestVote,
    Snapshot,
    Stored,
    VoteResponse,
)
from chronik.raft.state import ProposalDropped, Role

VOTERS = ConfState(voters=(0, 1, 2))


def node_with(
    terms: list[int], *, term: int | None = None, commit: int = 1, **options: object
) -> RaftNode:
    """Node 0 of three; its entries after the initial snapshot (1, term 1) have these terms."""
    last_term = terms[-1] if terms else 1
    hard_state = HardState(term=term or last_term, commit=commit)
    values: dict[str, object] = {"pre_vote": False, "check_quorum": False, **options}
    config = RaftConfig(node_id=0, **values)  # type: ignore[arg-type]
    return RaftNode(config, Stored(hard_state, VOTERS, Snapshot(1, 1, VOTERS), entries(terms)), int)


def entries(terms: list[int], first: int = 2) -> list[Entry]:
    return [Entry(term, first + position, data=b"%d" % term) for position, term in enumerate(terms)]


def answers(node: RaftNode) -> list[object]:
    """What leaves the node after its disk has everything."""
    messages: list[object] = []
    while node.has_ready():
        ready = node.ready()
        messages.extend(ready.messages)
        node.advance(ready)
    return messages


def vote(to: int, term: int, *, granted: bool, pre_vote: bool = False) -> VoteResponse:
    """An answer of node 0, which knows only its initial snapshot to be committed."""
    return VoteResponse(0, to, term, granted, pre_vote, commit=1, commit_term=1)


def log_terms(node: RaftNode) -> list[int]:
    return [entry.term for entry in node.state.log.entries]


def lead(node: RaftNode, voter: int = 1) -> None:
    node.campaign()
    answers(node)
    node.step(VoteResponse(voter, 0, node.term, granted=True))
    assert node.role is Role.LEADER


# ---- 5.1 terms


@pytest.mark.parametrize("role", [Role.FOLLOWER, Role.CANDIDATE, Role.LEADER])
def test_5_1_a_newer_term_makes_a_follower(role: Role) -> None:
    node = node_with([])
    if role is not Role.FOLLOWER:
        node.campaign()
    if role is Role.LEADER:
        answers(node)
        node.step(VoteResponse(1, 0, node.term, granted=True))
    assert node.role is role
    node.step(Heartbeat(2, 0, 9, commit=0))
    assert (node.role, node.term, node.leader) == (Role.FOLLOWER, 9, 2)


def test_5_1_a_message_of_an_old_term_changes_nothing() -> None:
    node = node_with([2, 2], term=5)
    node.step(AppendEntries(1, 0, 4, 3, 2, commit=3, entries=tuple(entries([4], 4))))
    node.step(RequestVote(1, 0, 4, last_index=99, last_term=4))
    assert log_terms(node) == [2, 2]
    assert (node.committed, node.state.vote, node.term) == (1, None, 5)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    "message",
    [
        AppendEntries(1, 0, 4, 3, 2, commit=3),
        Heartbeat(1, 0, 4, commit=0),
        InstallSnapshot(1, 0, 4, Snapshot(9, 4, VOTERS)),
        RequestVote(1, 0, 4, last_index=9, last_term=4),
    ],
    ids=lambda message: type(message).__name__,
)
def test_5_1_who_speaks_in_an_old_term_hears_of_the_new_one(
    message: AppendEntries | Heartbeat | InstallSnapshot | RequestVote, check: bool
) -> None:
    # `chronik simulate --seed 195 --nodes 5`: a leader sent for ever to a member far ahead of it.
    node = node_with([2, 2], term=5, check_quorum=check, pre_vote=check)
    node.step(message)
    (answer,) = answers(node)
    assert isinstance(answer, AppendResponse | VoteResponse)
    assert (answer.to, answer.term) == (1, 5)


# ---- 5.2 elections


def test_5_2_a_follower_campaigns_when_it_hears_no_leader() -> None:
    node = node_with([])
    for _ in range(node.state.election_timeout):
        assert node.role is Role.FOLLOWER
        node.tick()
    assert (node.role, node.term, node.state.vote) == (Role.CANDIDATE, 2, 0)


def test_5_2_a_leaders_word_delays_the_election() -> None:
    node = node_with([], term=2)
    for _ in range(10 * node.state.election_timeout):
        node.tick()
        node.step(Heartbeat(1, 0, 2, commit=0))
    assert (node.role, node.term) == (Role.FOLLOWER, 2)


def test_5_2_timeouts_are_drawn_anew_from_one_to_two_election_times() -> None:
    drawn = iter([3, 7, 0, 9, 5, 1])
    config = RaftConfig(node_id=0, pre_vote=False)
    stored = Stored(HardState(1, None, 1), VOTERS, Snapshot(1, 1, VOTERS), ())
    node = RaftNode(config, stored, lambda _: next(drawn))
    timeouts = []
    for _ in range(4):
        timeouts.append(node.state.election_timeout)
        node.campaign()
    assert timeouts == [13, 17, 10, 19]


def test_5_2_one_vote_per_term_first_come() -> None:
    node = node_with([])
    node.step(RequestVote(1, 0, 5, last_index=1, last_term=1))
    node.step(RequestVote(2, 0, 5, last_index=9, last_term=4))
    node.step(RequestVote(1, 0, 5, last_index=1, last_term=1))
    granted = [(m.to, m.granted) for m in answers(node) if isinstance(m, VoteResponse)]
    assert granted == [(1, True), (2, False), (1, True)]


def test_5_2_the_vote_is_written_before_it_is_given() -> None:
    node = node_with([])
    node.step(RequestVote(1, 0, 5, last_index=1, last_term=1))
    ready = node.ready()
    assert ready.hard_state == HardState(term=5, vote=1, commit=1)
    assert ready.messages == (vote(1, 5, granted=True),)


def test_5_2_the_vote_survives_a_restart() -> None:
    stored = Stored(HardState(5, 1, 1), VOTERS, Snapshot(1, 1, VOTERS), ())
    node = RaftNode(RaftConfig(node_id=0), stored, int)
    node.step(RequestVote(2, 0, 5, last_index=9, last_term=4))
    assert answers(node) == [vote(2, 5, granted=False)]


def test_5_2_the_own_vote_counts_only_when_it_is_on_disk() -> None:
    node = node_with([])
    node.campaign()
    ready = node.ready()
    node.step(VoteResponse(1, 0, 2, granted=True))
    roles = [node.role]
    node.advance(ready)
    assert [*roles, node.role] == [Role.CANDIDATE, Role.LEADER]


def test_5_2_an_own_vote_of_an_earlier_term_does_not_count() -> None:
    node = node_with([])
    node.campaign()
    ready = node.ready()
    node.campaign()
    node.step(VoteResponse(1, 0, 3, granted=True))
    node.advance(ready)
    assert (node.role, node.term) == (Role.CANDIDATE, 3)


def test_5_2_a_candidate_yields_to_the_leader_of_its_term() -> None:
    node = node_with([])
    node.campaign()
    node.step(AppendEntries(2, 0, 2, 1, 1, commit=1))
    assert (node.role, node.leader) == (Role.FOLLOWER, 2)


def test_5_2_a_refused_candidate_becomes_a_follower() -> None:
    node = node_with([])
    node.campaign()
    answers(node)
    node.step(VoteResponse(1, 0, 2, granted=False))
    node.step(VoteResponse(2, 0, 2, granted=False))
    assert (node.role, node.term) == (Role.FOLLOWER, 2)


def test_5_2_a_voter_counts_once_however_often_it_answers() -> None:
    cluster = Cluster(range(5), pre_vote=False)
    node = cluster[0]
    node.campaign()
    cluster.process(0)
    for _ in range(3):
        node.step(VoteResponse(1, 0, 2, granted=True))
    assert node.role is Role.CANDIDATE


# ---- 5.3 replication


def test_5_3_an_entry_commits_when_a_majority_has_it_on_disk() -> None:
    node = node_with([])
    lead(node)
    answers(node)
    assert node.committed == 1
    node.step(AppendResponse(1, 0, 2, index=2))
    assert node.committed == 2


def test_5_3_a_leader_counts_itself_only_when_its_own_disk_has_it() -> None:
    node = node_with([])
    lead(node)
    ready = node.ready()
    node.step(AppendResponse(1, 0, 2, index=2))
    assert node.committed == 1
    node.advance(ready)
    assert node.committed == 2


def test_5_3_a_leader_does_not_count_what_was_proposed_while_its_disk_was_busy() -> None:
    node = node_with([])
    lead(node)
    ready = node.ready()
    node.propose(b"not in this write")
    node.advance(ready)
    node.step(AppendResponse(1, 0, 2, index=3))
    committed = [node.committed]
    answers(node)
    assert [*committed, node.committed] == [2, 3]


def test_5_3_a_follower_acknowledges_after_its_disk_has_it() -> None:
    node = node_with([])
    node.step(AppendEntries(1, 0, 1, 1, 1, commit=1, entries=tuple(entries([1]))))
    ready = node.ready()
    assert ready.entries == tuple(entries([1]))
    assert ready.messages == (AppendResponse(0, 1, 1, index=2),)


def test_5_3_a_follower_refuses_entries_after_a_hole() -> None:
    node = node_with([1])
    node.step(AppendEntries(1, 0, 1, 5, 1, commit=1, entries=tuple(entries([1], 6))))
    assert answers(node) == [AppendResponse(0, 1, 1, 5, rejected=True, hint_index=2, hint_term=1)]


def test_5_3_an_old_message_does_not_shorten_the_log() -> None:
    node = node_with([1, 1, 1])
    node.step(AppendEntries(1, 0, 1, 1, 1, commit=1, entries=tuple(entries([1]))))
    assert log_terms(node) == [1, 1, 1]
    assert answers(node) == [AppendResponse(0, 1, 1, index=2)]


def test_5_3_a_follower_commits_no_more_than_the_message_covers() -> None:
    node = node_with([1, 1, 1])
    node.step(AppendEntries(1, 0, 1, 1, 1, commit=4, entries=tuple(entries([1]))))
    assert node.committed == 2


FIGURE_7 = {
    "a: one entry short": [1, 1, 1, 4, 4, 5, 5, 6, 6],
    "b: many entries short": [1, 1, 1, 4],
    "c: one entry too many": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
    "d: a term too many": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
    "e: short, and wrong": [1, 1, 1, 4, 4, 4, 4],
    "f: wrong for long": [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
}


@pytest.mark.parametrize("terms", FIGURE_7.values(), ids=FIGURE_7.keys())
def test_5_3_figure_7_every_log_becomes_the_leaders(terms: list[int]) -> None:
    leaders = [1, 1, 1, 4, 4, 5, 5, 6, 6, 6]
    cluster = Cluster((0, 1, 2), pre_vote=False, check_quorum=False)
    for node, own in ((0, leaders), (1, terms), (2, leaders[:3])):
        store = MemoryStore(VOTERS)
        store.hard_state = HardState(term=max(own), commit=1)
        store.entries = entries(own)
        cluster.members[node].store = store
        cluster.members[node].restart()
    # Node 2 has voted for 0 in a term above all that is known.
    cluster.isolate(1)
    cluster[0].step(Heartbeat(2, 0, 7, commit=0))
    cluster.elect(0)
    cluster.heal()
    cluster.tick(2, nodes=[0])
    assert cluster.terms(1) == [*leaders, 8]
    assert cluster[1].committed == cluster[0].committed == 12


# ---- 5.4 safety


@pytest.mark.parametrize(
    ("own", "last_index", "last_term", "granted"),
    [
        ([1], 2, 1, True),
        ([1], 3, 1, True),
        ([1, 1], 2, 1, False),
        ([1], 1, 1, False),
        ([1], 2, 2, True),
        ([1, 1, 1], 2, 2, True),
        ([2], 9, 1, False),
    ],
)
def test_5_4_1_the_vote_goes_to_logs_as_good_as_the_own(
    own: list[int], last_index: int, last_term: int, granted: bool
) -> None:
    node = node_with(own)
    node.step(RequestVote(1, 0, 7, last_index, last_term))
    answer = answers(node)[0]
    assert isinstance(answer, VoteResponse)
    assert answer.granted is granted


def test_5_4_2_commits_only_entries_of_its_own_term() -> None:
    # Figure 8: an entry of term 2 on a majority is not committed by a leader of term 4.
    node = node_with([2], term=3)
    lead(node)
    answers(node)
    node.step(AppendResponse(1, 0, 4, index=2))
    node.step(AppendResponse(2, 0, 4, index=2))
    assert node.committed == 1
    node.step(AppendResponse(1, 0, 4, index=3))
    assert node.committed == 3


# ---- 6 membership


def test_6_who_hears_its_leader_gives_no_vote() -> None:
    node = node_with([], check_quorum=True)
    node.step(Heartbeat(1, 0, 2, commit=0))
    answers(node)
    node.step(RequestVote(2, 0, 3, last_index=9, last_term=2))
    assert answers(node) == []
    assert node.term == 2
    for _ in range(10):
        node.tick()
    node.step(RequestVote(2, 0, 3, last_index=9, last_term=2))
    assert answers(node) == [vote(2, 3, granted=True)]


def test_6_a_node_with_members_to_apply_does_not_campaign() -> None:
    # It would ask a majority that decides no more.
    change = Entry(1, 2, EntryType.CONF_CHANGE, encode_conf_change(ConfChange()))
    stored = Stored(HardState(1, None, 2), VOTERS, Snapshot(1, 1, VOTERS), (change,))
    node = RaftNode(RaftConfig(node_id=0), stored, int)
    assert not node.campaign()
    assert node.role is Role.FOLLOWER


def test_6_votes_tell_what_is_committed_so_that_a_joint_configuration_can_end() -> None:
    # `chronik simulate --seed 20023 --nodes 5 --steps 4000`: nobody could ever be elected.
    joint = ConfState(voters=(0, 1, 2), voters_outgoing=(0, 3, 4))
    end = Entry(1, 2, EntryType.CONF_CHANGE, encode_conf_change(ConfChange()))
    stored = Stored(HardState(1, None, 1), joint, Snapshot(1, 1, joint), (end,))
    node = RaftNode(RaftConfig(node_id=0, pre_vote=False), stored, int)
    node.campaign()
    answers(node)
    node.step(VoteResponse(3, 0, node.term, granted=False, commit=2, commit_term=1))
    assert (node.role, node.committed) == (Role.FOLLOWER, 2)
    answers(node)
    assert node.conf_state == ConfState(voters=(0, 1, 2))


def test_6_votes_do_not_commit_an_entry_of_another_term() -> None:
    node = node_with([2, 2])
    node.step(RequestVote(1, 0, 5, last_index=3, last_term=4, commit=3, commit_term=4))
    assert node.committed == 1


# ---- 7 snapshots


def test_7_an_older_snapshot_is_answered_and_ignored() -> None:
    node = node_with([1, 1, 1], commit=4)
    node.step(InstallSnapshot(1, 0, 1, Snapshot(3, 1, VOTERS)))
    assert log_terms(node) == [1, 1, 1]
    assert answers(node) == [AppendResponse(0, 1, 1, index=4)]


def test_7_a_snapshot_of_known_entries_only_moves_the_commit_index() -> None:
    node = node_with([1, 1, 1])
    node.step(InstallSnapshot(1, 0, 1, Snapshot(3, 1, VOTERS)))
    assert log_terms(node) == [1, 1, 1]
    assert node.committed == 3


def test_7_a_snapshot_replaces_a_log_that_differs() -> None:
    node = node_with([1, 1, 1], term=4)
    node.step(InstallSnapshot(1, 0, 4, Snapshot(3, 3, VOTERS, b"state")))
    ready = node.ready()
    assert ready.snapshot == Snapshot(3, 3, VOTERS, b"state")
    assert ready.messages == (AppendResponse(0, 1, 4, index=3),)
    assert not node.state.is_promotable
    node.advance(ready)
    assert (node.applied, node.state.log.first_index, log_terms(node)) == (3, 4, [])


# ---- 8 clients


def test_8_a_new_leader_starts_with_an_empty_entry() -> None:
    node = node_with([])
    lead(node)
    assert node.ready().entries == (Entry(2, 2),)


# ---- the thesis


def test_thesis_6_4_a_lease_read_needs_no_round_trip() -> None:
    node = node_with([], check_quorum=True, read_mode=ReadMode.LEASE)
    lead(node)
    answers(node)
    node.step(AppendResponse(1, 0, 2, index=2))
    answers(node)
    node.read_index(b"x")
    ready = node.ready()
    assert [read.index for read in ready.read_states] == [2]
    assert ready.messages == ()


def test_thesis_9_6_a_pre_vote_changes_neither_term_nor_vote() -> None:
    node = node_with([])
    node.step(RequestVote(1, 0, 7, last_index=1, last_term=1, pre_vote=True))
    assert answers(node) == [vote(1, 7, granted=True, pre_vote=True)]
    assert (node.term, node.state.vote) == (1, None)


# ---- what a node finds on its disk


@pytest.mark.parametrize(
    ("hard_state", "stored"),
    [
        (HardState(1, None, 5), entries([1, 1])),
        (HardState(1, None, 1), [*entries([1]), *entries([1], 4)]),
        (HardState(3, None, 1), entries([3, 2])),
        (HardState(1, None, 1), entries([2])),
    ],
    ids=["committed entries missing", "a hole", "terms fall", "entry of an unknown term"],
)
def test_a_node_with_a_damaged_log_does_not_start(
    hard_state: HardState, stored: list[Entry]
) -> None:
    with pytest.raises(LogDamaged):
        RaftNode(
            RaftConfig(node_id=0),
            Stored(hard_state, VOTERS, Snapshot(1, 1, VOTERS), stored),
            int,
        )


def test_proposals_without_forwarding_are_dropped_by_followers() -> None:
    node = node_with([], forward_proposals=False)
    with pytest.raises(ProposalDropped, match="does not lead"):
        node.propose(b"x")
