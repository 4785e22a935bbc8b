"""The table of states."""

import pytest

from chronik.groups.group import TRANSITIONS, Group, GroupState


def test_every_state_has_its_transitions_and_any_can_die() -> None:
    assert set(TRANSITIONS) == set(GroupState)
    for state, following in TRANSITIONS.items():
        assert (GroupState.DEAD in following) == (state is not GroupState.DEAD)
        assert state not in following


@pytest.mark.parametrize("state", GroupState)
@pytest.mark.parametrize("following", GroupState)
def test_a_transition_outside_the_table_is_refused(
    state: GroupState, following: GroupState
) -> None:
    group = Group("g", state=state)
    if following in TRANSITIONS[state]:
        group.transition(following, 7)
        assert (group.state, group.previous_state, group.state_timestamp_ms) == (
            following,
            state,
            7,
        )
    else:
        with pytest.raises(AssertionError):
            group.transition(following, 7)


def test_rebalances_start_from_the_three_states_kafka_names() -> None:
    assert {state for state in GroupState if Group("g", state=state).can_rebalance} == {
        GroupState.EMPTY,
        GroupState.COMPLETING_REBALANCE,
        GroupState.STABLE,
    }
