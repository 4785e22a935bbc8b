"""Clients that behave: they join, sync, heartbeat, commit, and start over when told to."""

from dataclasses import dataclass, field

from chronik.groups.commands import (
    Command,
    Heartbeat,
    JoinGroup,
    OffsetCommit,
    OffsetToCommit,
    SyncGroup,
)
from chronik.groups.responses import (
    HeartbeatResponse,
    JoinGroupResponse,
    OffsetCommitResponse,
    Response,
    SyncGroupResponse,
)
from chronik.model.errors import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 20_000
_FORGET_ID = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}


def join_command(
    group_id: str, name: str, member_id: str, instance_id: str | None = None, version: int = 9
) -> JoinGroup:
    """A join of protocol `range` with the timeouts of these tests."""
    return JoinGroup(
        group_id,
        member_id,
        name,
        "/10.0.0.1",
        SESSION_MS,
        REBALANCE_MS,
        "consumer",
        (("range", b"\x00\x00\x00\x00\x00\x00"),),
        instance_id,
        requires_known_member_id=version >= 4,
        supports_skipping_assignment=version >= 9,
    )


@dataclass
class GroupClient:
    """One consumer; at most one request at a time, as a real one has."""

    group_id: str
    name: str
    instance_id: str | None = None
    phase: str = "join"
    member_id: str = ""
    generation_id: int = -1
    to_assign: tuple[str, ...] = ()
    assignment: bytes = b""
    waiting: bool = False
    committed: int = 0
    """The highest offset whose commit was acknowledged."""
    attempted: int = 0
    errors: list[ErrorCode] = field(default_factory=list)

    def request(self, *, commit: bool = False) -> Command | None:
        """What it sends next; nothing while it waits for an answer."""
        if self.waiting:
            return None
        self.waiting = True
        if self.phase == "join":
            return join_command(self.group_id, self.name, self.member_id, self.instance_id)
        if self.phase == "sync":
            given = tuple((m, f"{self.generation_id}:{m}".encode()) for m in self.to_assign)
            return SyncGroup(
                self.group_id, self.member_id, self.generation_id, given, self.instance_id
            )
        if commit:
            return self._commit()
        return Heartbeat(self.group_id, self.member_id, self.generation_id, self.instance_id)

    def _commit(self) -> Command:
        self.attempted += 1
        offset = OffsetToCommit("orders", int(self.name[1:]), self.attempted)
        return OffsetCommit(
            self.group_id, (offset,), self.member_id, self.generation_id, self.instance_id
        )

    def receive(self, response: Response) -> None:
        """Takes an answer."""
        assert self.waiting
        self.waiting = False
        match response:
            case JoinGroupResponse():
                self._joined(response)
            case SyncGroupResponse(error=ErrorCode.NONE):
                self.phase, self.assignment = "run", response.assignment
            case OffsetCommitResponse(partitions=(result,)) if result.error is ErrorCode.NONE:
                self.committed = max(self.committed, self.attempted)
            case OffsetCommitResponse(partitions=(result,)):
                self._start_over(result.error)
            case SyncGroupResponse() | HeartbeatResponse():
                if response.error is not ErrorCode.NONE:
                    self._start_over(response.error)
            case _:
                raise AssertionError(response)

    def connection_lost(self) -> None:
        """The node is gone; a client joins again, with the id it has."""
        self.waiting = False
        if self.phase == "sync":
            self.phase = "join"

    def restart(self) -> None:
        """The process starts anew."""
        self.phase, self.member_id, self.generation_id, self.waiting = "join", "", -1, False
        self.assignment = b""

    def _joined(self, response: JoinGroupResponse) -> None:
        if response.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif response.error is ErrorCode.NONE:
            self.phase, self.member_id = "sync", response.member_id
            self.generation_id = response.generation_id
            listed = () if response.skip_assignment else response.members
            self.to_assign = tuple(m.member_id for m in listed)
        else:
            self._start_over(response.error)

    def _start_over(self, error: ErrorCode) -> None:
        self.errors.append(error)
        self.phase, self.assignment = "join", b""
        if error in _FORGET_ID:
            self.member_id = ""
