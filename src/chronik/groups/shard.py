"""What the commands of one coordinator share: state, timers, and the output of the step under way.

Kafka calls the groups of one `__consumer_offsets` partition a shard.
"""

from collections.abc import Callable, Iterator

from chronik.groups.config import GroupConfig
from chronik.groups.durable import DurableState
from chronik.groups.group import Group, GroupState
from chronik.groups.records import OffsetCommitRecord, Record
from chronik.groups.responses import Output, Reply, Response, Write
from chronik.groups.timers import Timer, Timers


class Shard:
    """The state behind `GroupCoordinator`; one step at a time runs on it."""

    __slots__ = (
        "_after",
        "_out",
        "_records",
        "config",
        "durable",
        "groups",
        "in_flight",
        "new_uuid",
        "now_ms",
        "timers",
    )

    def __init__(self, config: GroupConfig, new_uuid: Callable[[], str]) -> None:
        self.config = config
        self.new_uuid = new_uuid
        self.durable = DurableState()
        self.groups: dict[str, Group] = {}
        self.timers = Timers()
        self.in_flight: dict[Write, None] = {}
        """Writes given to the driver and not yet settled, in log order."""
        self.now_ms = 0
        self._out = Output()
        self._records: dict[str, list[Record]] = {}
        self._after: list[tuple[str, Reply]] = []

    def reply(self, reply_to: object, response: Response) -> None:
        """Answers at once."""
        self._out.replies.append(Reply(reply_to, response))

    def reply_after_write(self, group_id: str, reply_to: object, response: Response) -> None:
        """Answers when this step's records of the group are committed; at once if it has none."""
        self._after.append((group_id, Reply(reply_to, response)))

    def write(self, record: Record) -> None:
        """Adds a record to this step's write of its group."""
        self._records.setdefault(record.group_id, []).append(record)

    def finish(self) -> Output:
        """Ends the step: one write per group, with the replies that wait for it."""
        out, self._out = self._out, Output()
        if self._records:
            self._finish_writes(out)
        if self._after:
            out.replies.extend(reply for _, reply in self._after)
            self._after = []
        return out

    def set_timer(self, timer: Timer, delay_ms: int) -> None:
        """Sets a timer; at least a millisecond ahead, so that a round of timers ends."""
        self.timers.set(timer, self.now_ms + max(delay_ms, 1))

    def create_group(self, group_id: str) -> Group:
        """A group nobody has heard of; nothing is written before it has a generation."""
        group = Group(group_id)
        self.groups[group_id] = group
        return group

    def forget_if_unused(self, group: Group) -> None:
        """Drops an empty group that neither the log nor a joining client knows.

        With a write under way it stays: the log may be about to know it.
        """
        group_id = group.group_id
        if group.state is not GroupState.EMPTY or group.pending_members:
            return
        if self.durable.knows(group_id) or group_id in self._records or self.writes_of(group_id):
            return
        self._forget(group)

    def clear(self) -> None:
        """Drops everything, for a coordinator that is one no longer."""
        self.in_flight.clear()
        self.groups.clear()
        self.timers = Timers()

    def writes_of(self, group_id: str) -> list[Write]:
        """The group's writes under way; what they hold may yet become durable."""
        return [write for write in self.in_flight if write.group_id == group_id]

    def offset_keys(self, group_id: str) -> Iterator[tuple[str, int]]:
        """Partitions with an offset, committed or on its way: a delete must cover both."""
        keys = dict.fromkeys((t, p) for t, p, _ in self.durable.offsets_of(group_id))
        for write in self.writes_of(group_id):
            for record in write.records:
                if isinstance(record, OffsetCommitRecord):
                    keys[record.topic, record.partition] = None
        yield from keys

    def _forget(self, group: Group) -> None:
        assert not group.members
        assert group.join_timer.deadline_ms is None
        assert group.sync_timer.deadline_ms is None
        group.transition(GroupState.DEAD, self.now_ms)
        del self.groups[group.group_id]

    def _finish_writes(self, out: Output) -> None:
        for group_id, records in self._records.items():
            replies = tuple(reply for group, reply in self._after if group == group_id)
            write = Write(group_id, tuple(records), replies)
            self.in_flight[write] = None
            out.writes.append(write)
        self._after = [(group, reply) for group, reply in self._after if group not in self._records]
        self._records = {}
