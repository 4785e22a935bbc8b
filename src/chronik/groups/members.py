"""A member of a group as the coordinator remembers it."""

from dataclasses import dataclass

from chronik.groups.commands import JoinGroup
from chronik.groups.records import MemberMetadata
from chronik.groups.timers import Timer, TimerKind

Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True, eq=False)
class Member:
    """Who it is, what it can do, what it was given, and which of its requests still waits."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    timer: Timer
    assignment: bytes = b""
    is_new: bool = False
    """True until its first join is answered: it cannot heartbeat before."""
    awaiting_join: object | None = None
    """The token of its parked JoinGroup."""
    awaiting_sync: object | None = None
    """The token of its parked SyncGroup."""

    @property
    def is_static(self) -> bool:
        """True for members that survive a restart of their client (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def satisfies_heartbeat(self) -> bool:
        """True while the coordinator owes it an answer: it has no reason to heartbeat.

        A new member is the exception, since its client may be gone unseen.
        """
        waits = self.awaiting_join is not None or self.awaiting_sync is not None
        return waits and not self.is_new

    def metadata(self, protocol: str | None) -> bytes:
        """What it told for a protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: frozenset[str]) -> str:
        """Its favourite among the candidates."""
        name = next((name for name, _ in self.protocols if name in candidates), None)
        assert name is not None, "a member supports every candidate"
        return name

    @property
    def protocol_names(self) -> frozenset[str]:
        """The protocols it can follow."""
        return frozenset([name for name, _ in self.protocols])

    def stored(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        """Its form in the log."""
        return MemberMetadata(
            self.member_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.metadata(protocol),
            assignment,
            self.group_instance_id,
        )


def session_timer(group_id: str, member_id: str) -> Timer:
    """The timer that ends a member, or an id given to one that never came back with it."""
    return Timer(TimerKind.SESSION, group_id, member_id)


def joining(command: JoinGroup, member_id: str) -> Member:
    """A member at its first join."""
    return Member(
        member_id,
        command.group_instance_id,
        command.client_id,
        command.client_host,
        command.session_timeout_ms,
        command.rebalance_timeout_ms,
        command.protocol_type,
        command.protocols,
        session_timer(command.group_id, member_id),
        is_new=True,
    )


def loaded(group_id: str, protocol_type: str, protocol: str | None, data: MemberMetadata) -> Member:
    """A member as the log tells of it; only the protocol in use is known."""
    return Member(
        data.member_id,
        data.group_instance_id,
        data.client_id,
        data.client_host,
        data.session_timeout_ms,
        data.rebalance_timeout_ms,
        protocol_type,
        ((protocol or "", data.subscription),),
        session_timer(group_id, data.member_id),
        assignment=data.assignment,
    )
