"""Majorities, and what makes two of them safe together."""

from hypothesis import given
from hypothesis import strategies as st

from chronik.raft.quorum import UNBOUNDED, Quorum, VoteResult, majority_committed

NODES = st.frozensets(st.integers(0, 6), max_size=7)
ACKED = st.dictionaries(st.integers(0, 6), st.integers(0, 20))
VOTES = st.dictionaries(st.integers(0, 6), st.booleans())


@given(NODES, ACKED)
def test_committed_is_the_highest_index_that_more_than_half_have(
    voters: frozenset[int], acked: dict[int, int]
) -> None:
    committed = majority_committed(voters, acked)
    have = [index for index in range(21) if _count(voters, acked, index) * 2 > len(voters)]
    assert committed == (max(have) if voters else UNBOUNDED)


def _count(voters: frozenset[int], acked: dict[int, int], index: int) -> int:
    return sum(1 for voter in voters if acked.get(voter, 0) >= index)


@given(NODES, NODES, VOTES)
def test_two_candidates_never_both_win(
    incoming: frozenset[int], outgoing: frozenset[int], votes: dict[int, bool]
) -> None:
    quorum = Quorum(incoming or frozenset({0}), outgoing)
    others = {voter: not granted for voter, granted in votes.items()}
    both = {quorum.vote(votes), quorum.vote(others)}
    assert both != {VoteResult.WON}


@given(NODES, NODES, VOTES)
def test_a_decided_vote_stays_decided(
    incoming: frozenset[int], outgoing: frozenset[int], votes: dict[int, bool]
) -> None:
    quorum = Quorum(incoming, outgoing)
    result = quorum.vote(votes)
    if result is not VoteResult.PENDING:
        for late in (True, False):
            everybody = {voter: votes.get(voter, late) for voter in range(7)}
            assert quorum.vote(everybody) is result


@given(NODES, ACKED)
def test_joint_with_nobody_or_with_itself_is_the_majority(
    voters: frozenset[int], acked: dict[int, int]
) -> None:
    alone = majority_committed(voters, acked)
    assert Quorum(voters).committed(acked) == alone
    assert Quorum(voters, voters).committed(acked) == alone


def test_a_quorum_is_active_if_both_halves_are() -> None:
    quorum = Quorum(frozenset({0, 1, 2}), frozenset({2, 3, 4}))
    assert quorum.is_active({1, 2, 3})
    assert not quorum.is_active({0, 1, 2})
