"""One group: state, members, generation. Changes memory only; nothing here replies or writes.

Empty                --first join-->                     PreparingRebalance
PreparingRebalance   --all joined, or time is up-->      CompletingRebalance
PreparingRebalance   --everybody left-->                 Empty
CompletingRebalance  --assignment is committed-->        Stable
CompletingRebalance  --member joins, leaves or dies-->   PreparingRebalance
Stable               --member joins, leaves or dies-->   PreparingRebalance
any                  --forgotten-->                      Dead
"""

from dataclasses import dataclass, field
from enum import Enum

from chronik.groups.commands import JoinGroup
from chronik.groups.members import Member, Protocols
from chronik.groups.records import NO_TIMESTAMP, GroupMetadataRecord, GroupMetadataValue
from chronik.groups.responses import JoinedMember
from chronik.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from chronik.groups.timers import Timer, TimerKind
from chronik.model.errors import ErrorCode


class GroupState(Enum):
    """The states of a classic group, in the words of DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}


@dataclass(slots=True, eq=False)
class Group:
    """A classic group; one of KIP-848 would be another class in the same place."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.EMPTY
    state_timestamp_ms: int | None = None
    """When the state was entered; unknown for simple groups and old records (KIP-211)."""
    generation_id: int = 0
    protocol_type: str | None = None
    """None for simple groups, which only store offsets."""
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Member id by group instance id."""
    protocol_counts: dict[str, int] = field(default_factory=dict)
    """How many members can follow a protocol; one that all can is a candidate."""
    awaiting_join_count: int = 0
    """Members whose JoinGroup is parked."""
    pending_members: dict[str, Timer] = field(default_factory=dict)
    """Ids that were given but not yet used (KIP-394)."""
    pending_sync: set[str] = field(default_factory=set)
    """Members of the generation that have not asked for their assignment."""
    subscribed: frozenset[str] | None = None
    """Topics of all members; None where they are not known."""
    assignment_in_flight: bool = False
    """The leader's assignment of this generation is on its way to the log."""
    new_member_added: bool = False
    initial_delay_ms: int = 0
    initial_remaining_ms: int = 0
    join_timer: Timer = field(init=False)
    sync_timer: Timer = field(init=False)

    def __post_init__(self) -> None:
        self.join_timer = Timer(TimerKind.JOIN, self.group_id)
        self.sync_timer = Timer(TimerKind.SYNC, self.group_id)

    def transition(self, state: GroupState, now_ms: int) -> None:
        """Enters a state; the table says from where one may."""
        assert state in TRANSITIONS[self.state], f"{self.state} -> {state}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        """True in the states from which a rebalance starts."""
        return GroupState.PREPARING_REBALANCE in TRANSITIONS[self.state]

    @property
    def is_initial_rebalance(self) -> bool:
        """True while an empty group gathers its first members."""
        return (
            self.state is GroupState.PREPARING_REBALANCE and self.previous_state is GroupState.EMPTY
        )

    @property
    def uses_consumer_protocol(self) -> bool:
        """True for groups of consumers, false for Connect workers and the like."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """The patience of the slowest member."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    @property
    def all_members_joined(self) -> bool:
        """True when nobody is left to wait for, ids given but not used included."""
        return not self.pending_members and self.awaiting_join_count == len(self.members)

    def validate(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Says whether a request comes from a member; a replaced static member is fenced."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: Member) -> None:
        """Lets a member in; the first one brings the protocol type and leads."""
        if not self.members:
            self.protocol_type = member.protocol_type
        assert self.protocol_type == member.protocol_type
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: Member) -> None:
        """Lets a member go; another one leads."""
        assert member.awaiting_join is None, "its answer comes first"
        assert member.awaiting_sync is None, "its answer comes first"
        del self.members[member.member_id]
        self._count_protocols(member, -1)
        self.pending_sync.discard(member.member_id)
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def update(self, member: Member, command: JoinGroup) -> None:
        """Takes over what a rejoin states."""
        self._count_protocols(member, -1)
        member.protocols = command.protocols
        self._count_protocols(member, 1)
        member.session_timeout_ms = command.session_timeout_ms
        member.rebalance_timeout_ms = command.rebalance_timeout_ms

    def park_join(self, member: Member, reply_to: object) -> None:
        """Keeps the token of a JoinGroup that is answered later."""
        assert reply_to is not None
        assert member.awaiting_join is None
        member.awaiting_join = reply_to
        self.awaiting_join_count += 1

    def take_join(self, member: Member) -> object | None:
        """Gives up the token of the parked JoinGroup, if there is one."""
        reply_to = member.awaiting_join
        if reply_to is not None:
            member.awaiting_join = None
            self.awaiting_join_count -= 1
        return reply_to

    def replace_static(self, old: Member, new: Member) -> None:
        """Puts a restarted static member in its own place; it leads if it did."""
        assert old.group_instance_id == new.group_instance_id
        assert new.group_instance_id is not None
        assert old.awaiting_join is None, "its answer comes first"
        self._count_protocols(old, -1)
        self._count_protocols(new, 1)
        self.members = {
            new.member_id if key == old.member_id else key: new if m is old else m
            for key, m in self.members.items()
        }
        self.static_members[new.group_instance_id] = new.member_id
        if old.member_id in self.pending_sync:
            self.pending_sync.discard(old.member_id)
            self.pending_sync.add(new.member_id)
        if self.leader_id == old.member_id:
            self.leader_id = new.member_id

    def elect_joined_leader(self) -> bool:
        """Keeps the leader if it has joined, else takes one that has; False where none has."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        joined = next((m for m in self.members.values() if m.awaiting_join is not None), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Says whether a member with these protocols can take part."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        size = len(self.members)
        return any(self.protocol_counts.get(name, 0) == size for name, _ in protocols)

    def select_protocol(self) -> str:
        """The protocol with most votes among those that every member can follow.

        There is always one, since nobody gets in or comes back without (see `supports`).
        """
        size = len(self.members)
        candidates = frozenset([name for name, n in self.protocol_counts.items() if n == size])
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def next_generation(self, now_ms: int) -> None:
        """Starts the generation of the members that are there now."""
        self.generation_id += 1
        self.assignment_in_flight = False
        self.pending_sync.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed = self.compute_subscribed()
        empty = not self.members
        self.transition(GroupState.EMPTY if empty else GroupState.COMPLETING_REBALANCE, now_ms)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic; a consumer group that cannot tell says yes."""
        if self.subscribed is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed

    def compute_subscribed(self) -> frozenset[str] | None:
        """The topics of all members, where the protocol type says how to find them."""
        if not self.uses_consumer_protocol:
            return None
        topics: frozenset[str] = frozenset()
        for member in self.members.values():
            of_member = subscribed_topics(member.metadata(self.protocol_name))
            if of_member is None:
                return None
            topics |= of_member
        return topics

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """The members as the leader is told of them."""
        return tuple(
            JoinedMember(m.member_id, m.group_instance_id, m.metadata(self.protocol_name))
            for m in self.members.values()
        )

    def record(self, assignments: dict[str, bytes]) -> GroupMetadataRecord:
        """This generation as a record."""
        timestamp_ms = self.state_timestamp_ms
        value = GroupMetadataValue(
            self.protocol_type or "",
            self.generation_id,
            self.protocol_name,
            self.leader_id,
            NO_TIMESTAMP if timestamp_ms is None else timestamp_ms,
            tuple(
                m.stored(self.protocol_name, assignments.get(m.member_id, b""))
                for m in self.members.values()
            ),
        )
        return GroupMetadataRecord(self.group_id, value)

    def _count_protocols(self, member: Member, change: int) -> None:
        for name in member.protocol_names:
            count = self.protocol_counts.get(name, 0) + change
            if count:
                self.protocol_counts[name] = count
            else:
                del self.protocol_counts[name]
