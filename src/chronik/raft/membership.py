"""Who belongs to the cluster, and the two safe ways to change that (section 6, thesis 4).

A simple change adds or removes one voter, so old and new majorities share a member. Any other
goes through a joint configuration, in which both majorities must agree. A voter that becomes a
learner keeps its vote in the outgoing half until that is left: `learners_next`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from chronik.raft.messages import (
    ConfChange,
    ConfChangeTransition,
    ConfChangeType,
    ConfState,
    MemberChange,
    NodeId,
)
from chronik.raft.quorum import Quorum

NO_VOTERS = Quorum()


class MembershipError(ValueError):
    """A change that would not be safe; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Members:
    """The configuration that a node acts by; it takes effect when its entry is applied."""

    voters: Quorum = NO_VOTERS
    learners: frozenset[NodeId] = frozenset()
    learners_next: frozenset[NodeId] = frozenset()
    auto_leave: bool = False

    @property
    def ids(self) -> frozenset[NodeId]:
        """Everybody who gets the log."""
        return self.voters.ids | self.learners

    @property
    def is_joint(self) -> bool:
        """True between entering and leaving a joint configuration."""
        return self.voters.is_joint

    def check(self) -> None:
        """What must hold after every change."""
        assert not self.learners & self.voters.ids, "a learner with a vote"
        assert self.learners_next <= self.voters.outgoing, "learners_next without an outgoing vote"
        assert self.is_joint or not (self.learners_next or self.auto_leave)

    def to_conf_state(self) -> ConfState:
        """The form that snapshots carry."""
        return ConfState(
            voters=tuple(sorted(self.voters.incoming)),
            voters_outgoing=tuple(sorted(self.voters.outgoing)),
            learners=tuple(sorted(self.learners)),
            learners_next=tuple(sorted(self.learners_next)),
            auto_leave=self.auto_leave,
        )


def from_conf_state(state: ConfState) -> Members:
    """The configuration that a snapshot carries."""
    members = Members(
        Quorum(frozenset(state.voters), frozenset(state.voters_outgoing)),
        frozenset(state.learners),
        frozenset(state.learners_next),
        state.auto_leave,
    )
    members.check()
    return members


def needs_joint(change: ConfChange) -> bool:
    """True if the change cannot (or shall not) be made in one step."""
    return change.transition is not ConfChangeTransition.AUTO or len(change.changes) > 1


def leaves_joint(change: ConfChange) -> bool:
    """True for the change that ends a joint configuration."""
    return not change.changes and change.transition is ConfChangeTransition.AUTO


def apply_change(members: Members, change: ConfChange) -> Members:
    """The configuration after `change`, by whichever way it asks for."""
    if leaves_joint(change):
        return leave_joint(members)
    if needs_joint(change):
        auto_leave = change.transition is not ConfChangeTransition.JOINT_EXPLICIT
        return enter_joint(members, change.changes, auto_leave=auto_leave)
    return simple(members, change.changes)


def simple(members: Members, changes: Sequence[MemberChange]) -> Members:
    """Changes at most one voter, in one step."""
    if members.is_joint:
        raise MembershipError("can't apply simple config change in joint config")
    changed = _apply(members, changes)
    if len(members.voters.incoming ^ changed.voters.incoming) > 1:
        raise MembershipError("more than one voter changed without entering joint config")
    changed.check()
    return changed


def enter_joint(
    members: Members, changes: Sequence[MemberChange], *, auto_leave: bool = False
) -> Members:
    """Old and new voters together, until `leave_joint`."""
    if members.is_joint:
        raise MembershipError("config is already joint")
    if not members.voters.incoming:
        # There must be a majority that hands over.
        raise MembershipError("can't make a zero-voter config joint")
    outgoing = members.voters.incoming
    joint = replace(members, voters=Quorum(outgoing, outgoing), auto_leave=auto_leave)
    changed = _apply(joint, changes)
    changed.check()
    return changed


def leave_joint(members: Members) -> Members:
    """Only the incoming voters remain; demoted voters become learners now."""
    if not members.is_joint:
        raise MembershipError("can't leave a non-joint config")
    changed = Members(
        voters=Quorum(members.voters.incoming),
        learners=members.learners | members.learners_next,
    )
    changed.check()
    return changed


def _apply(members: Members, changes: Iterable[MemberChange]) -> Members:
    for change in changes:
        members = _CHANGES[change.type](members, change.node_id)
    if not members.voters.incoming:
        raise MembershipError("removed all voters")
    return members


def _add_voter(members: Members, node: NodeId) -> Members:
    return replace(
        members,
        voters=replace(members.voters, incoming=members.voters.incoming | {node}),
        learners=members.learners - {node},
        learners_next=members.learners_next - {node},
    )


def _add_learner(members: Members, node: NodeId) -> Members:
    if node in members.learners:
        return members
    removed = _remove(members, node)
    if node in members.voters.outgoing:
        # It votes in the outgoing half still: a learner only when that half is left.
        return replace(removed, learners_next=removed.learners_next | {node})
    return replace(removed, learners=removed.learners | {node})


def _remove(members: Members, node: NodeId) -> Members:
    return replace(
        members,
        voters=replace(members.voters, incoming=members.voters.incoming - {node}),
        learners=members.learners - {node},
        learners_next=members.learners_next - {node},
    )


_CHANGES: dict[ConfChangeType, Callable[[Members, NodeId], Members]] = {
    ConfChangeType.ADD_VOTER: _add_voter,
    ConfChangeType.ADD_LEARNER: _add_learner,
    ConfChangeType.REMOVE: _remove,
}
