"""Changes of members: old and new configuration can never decide without each other."""

from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from chronik.raft.membership import (
    Members,
    MembershipError,
    apply_change,
    from_conf_state,
    leaves_joint,
)
from chronik.raft.messages import (
    ConfChange,
    ConfChangeTransition,
    ConfChangeType,
    ConfState,
    MemberChange,
)

NODES = range(5)
CHANGE = st.builds(
    ConfChange,
    st.lists(
        st.builds(MemberChange, st.sampled_from(ConfChangeType), st.sampled_from(NODES)), max_size=3
    ).map(tuple),
    st.sampled_from(ConfChangeTransition),
)
START = from_conf_state(ConfState(voters=(0, 1, 2)))


def after(changes: list[ConfChange]) -> list[Members]:
    """Every configuration on the way; refused changes change nothing."""
    way = [START]
    for change in changes:
        try:
            way.append(apply_change(way[-1], change))
        except MembershipError:
            continue
    return way


def deciders(members: Members) -> list[frozenset[int]]:
    everybody = [frozenset(chosen) for size in range(6) for chosen in combinations(NODES, size)]
    return [chosen for chosen in everybody if members.voters.is_active(chosen)]


@given(st.lists(CHANGE, max_size=5))
def test_consecutive_configurations_share_a_member_in_every_decision(
    changes: list[ConfChange],
) -> None:
    way = after(changes)
    for old, new in pairwise(way):
        for one in deciders(old):
            assert all(one & other for other in deciders(new))


@given(st.lists(CHANGE, max_size=8))
def test_members_survive_the_form_that_snapshots_carry(changes: list[ConfChange]) -> None:
    for members in after(changes):
        assert from_conf_state(members.to_conf_state()) == members


@given(st.lists(CHANGE, max_size=8))
def test_a_joint_configuration_can_always_be_left(changes: list[ConfChange]) -> None:
    members = after(changes)[-1]
    if members.is_joint:
        assert leaves_joint(ConfChange())
        left = apply_change(members, ConfChange())
        assert not left.is_joint
        assert left.voters.incoming == members.voters.incoming
