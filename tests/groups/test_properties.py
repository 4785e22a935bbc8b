"""Any sequence of requests, from clients that need not behave."""

from dataclasses import dataclass, field
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.groups.clients import REBALANCE_MS, SESSION_MS, join_command
from tests.groups.driver import Driver

from chronik.groups.commands import (
    Command,
    DeleteGroup,
    Heartbeat,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetDelete,
    OffsetToCommit,
    SyncGroup,
    TopicsDeleted,
)
from chronik.groups.config import GroupConfig
from chronik.groups.group import Group, GroupState
from chronik.groups.records import GroupMetadataRecord
from chronik.groups.responses import JoinGroupResponse
from chronik.model.errors import ErrorCode

GROUP = "billing"
NEW_MEMBER_MS = 15_000
CLIENTS = 5
STATIC = {0: "i0", 1: "i1"}

ACTIONS = (
    ["join"] * 8
    + ["sync"] * 6
    + ["heartbeat", "leave", "commit", "forget", "delete", "delete-offsets", "delete-topic"]
    + ["time"] * 3
    + ["log-commit"] * 5
    + ["log-fail", "crash"]
    + ["round"] * 3
)
Step = tuple[str, int, int]
step_lists = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, CLIENTS - 1), st.integers(0, 3)),
    max_size=80,
)


@dataclass
class Client:
    number: int
    member_id: str = ""
    generation_id: int = -1
    to_assign: tuple[str, ...] = ()


@dataclass
class Play:
    """Sends what the steps say, and keeps book of every question and answer."""

    driver: Driver = field(
        default_factory=lambda: Driver(
            GroupConfig(
                initial_rebalance_delay_ms=500,
                new_member_join_timeout_ms=NEW_MEMBER_MS,
                group_size_max=4,
            ),
            hold=True,
        )
    )
    clients: list[Client] = field(default_factory=lambda: [Client(n) for n in range(CLIENTS)])
    tokens: dict[int, Client | None] = field(default_factory=dict)
    """Questions without an answer."""
    formed: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """The members of each generation, as its leader was told."""
    numbers: "count[int]" = field(default_factory=count)

    def run(self, step: Step) -> None:
        action, which, amount = step
        client = self.clients[which]
        if action == "time":
            self.driver.advance((1, 600, 6_000, 16_000)[amount])
        elif action == "log-commit" and self.driver.queue:
            self.driver.commit_next()
        elif action == "log-fail" and self.driver.queue:
            self.driver.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        elif action == "crash":
            self.driver.crash(min(amount, len(self.driver.queue)))
            self.tokens.clear()
            self.formed.clear()
        elif action == "forget":
            client.member_id, client.generation_id = "", -1
        elif action == "round":
            self.round()
        else:
            self.ask(action, client, amount)
        self.collect()
        self.check()
        if GROUP not in self.driver.coordinator.groups:
            self.formed.clear()  # deleted or unused; a group of that name is a new one

    def round(self) -> None:
        """What mostly happens: all come, all get their share."""
        for action in ("join", "join", "time", "sync"):
            for client in self.clients:
                if action == "time":
                    self.driver.advance(300)
                else:
                    self.ask(action, client, 2)
                self.collect()
        while self.driver.queue:
            self.driver.commit_next()

    def ask(self, action: str, client: Client, amount: int) -> None:
        command = self.command(action, client, amount)
        if command is None:
            return
        token = next(self.numbers)
        if not isinstance(command, TopicsDeleted):
            self.tokens[token] = client
        self.driver.step(command, token)

    def command(self, action: str, client: Client, amount: int) -> Command | None:
        instance = STATIC.get(client.number)
        member, generation = client.member_id, client.generation_id
        commands: dict[str, Command] = {
            "join": join_command(
                GROUP, f"c{client.number}", member, instance, (3, 8, 9, 9)[amount]
            ),
            "sync": SyncGroup(
                GROUP, member, generation, tuple((m, b"share") for m in client.to_assign), instance
            ),
            "heartbeat": Heartbeat(GROUP, member, generation, instance),
            "leave": LeaveGroup(GROUP, (LeavingMember(member, instance),)),
            "commit": OffsetCommit(
                GROUP, (OffsetToCommit("orders", amount, 1),), member, generation, instance
            ),
            "delete": DeleteGroup(GROUP),
            "delete-offsets": OffsetDelete(GROUP, (("orders", (amount,)),)),
            "delete-topic": TopicsDeleted(frozenset({"orders"})),
        }
        return commands.get(action)

    def collect(self) -> None:
        for reply in self.driver.take_replies():
            assert isinstance(reply.reply_to, int)
            client = self.tokens.pop(reply.reply_to)  # a second answer would not be found
            if client is not None and isinstance(reply.response, JoinGroupResponse):
                self.learn(client, reply.response)

    def learn(self, client: Client, response: JoinGroupResponse) -> None:
        if response.error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
            client.member_id = ""
        elif response.member_id:
            client.member_id = response.member_id
        if response.error is not ErrorCode.NONE:
            return
        client.generation_id = response.generation_id
        client.to_assign = ()
        if response.members and not response.skip_assignment:
            assert response.leader == response.member_id
            told = (response.leader, *(m.member_id for m in response.members))
            client.to_assign = told[1:]
            # One leader and one membership per generation number.
            assert self.formed.setdefault(response.generation_id, told) == told

    def check(self) -> None:
        coordinator = self.driver.coordinator
        assert coordinator.durable == self.driver.fold()
        parked: list[object] = []
        for group in coordinator.groups.values():
            parked += check_group(group)
        for write in self.driver.queue:
            parked += [reply.reply_to for reply in write.replies]
        # Every question is either answered or known to be waiting, in one place.
        assert sorted(map(str, parked)) == sorted(map(str, self.tokens))


def check_group(group: Group) -> list[object]:
    """The invariants of a group; returns the tokens that wait in it."""
    waiting = [m.awaiting_join for m in group.members.values() if m.awaiting_join is not None]
    assert group.awaiting_join_count == len(waiting)
    assert (group.state is GroupState.EMPTY) <= (not group.members)
    assert set(group.static_members.values()) <= set(group.members)
    if group.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
        assert group.leader_id in group.members
        assert not waiting
    if group.state is GroupState.STABLE:
        assert all(m.assignment == b"share" for m in group.members.values())
    assert (group.join_timer.deadline_ms is not None) == (
        group.state is GroupState.PREPARING_REBALANCE
    )
    for member in group.members.values():
        # Whoever is not owed an answer is watched by a timer.
        assert member.timer.deadline_ms is not None or member.satisfies_heartbeat
    syncs = [m.awaiting_sync for m in group.members.values() if m.awaiting_sync is not None]
    return waiting + syncs


def played(steps: list[Step]) -> Play:
    play = Play()
    for step in steps:
        play.run(step)
    return play


@settings(max_examples=250)
@given(step_lists)
def test_fm65_every_join_and_sync_is_answered_within_the_timeouts(steps: list[Step]) -> None:
    play = played(steps)
    play.driver.hold = False
    while play.driver.queue:
        play.driver.commit_next()
    play.driver.advance(2 * REBALANCE_MS + max(SESSION_MS, NEW_MEMBER_MS))
    play.collect()
    assert not play.tokens
    play.driver.advance(10 * REBALANCE_MS)
    assert all(g.state is GroupState.EMPTY for g in play.driver.coordinator.groups.values())


@settings(max_examples=100)
@given(step_lists)
def test_stored_generations_never_go_back(steps: list[Step]) -> None:
    last = 0
    for record in played(steps).driver.records():
        if isinstance(record, GroupMetadataRecord):
            generation = 0 if record.value is None else record.value.generation
            assert record.value is None or generation >= last
            last = generation


@settings(max_examples=60)
@given(step_lists, st.integers(0, 1000))
def test_replay_of_any_prefix_restores_the_groups_of_that_moment(
    steps: list[Step], cut: int
) -> None:
    driver = played(steps).driver
    driver.log = driver.log[: cut % (len(driver.log) + 1)]
    driver.crash()
    durable = driver.coordinator.durable
    assert durable == driver.fold()
    assert set(driver.coordinator.groups) == {*durable.generations, *durable.offsets}
    for group_id, value in durable.generations.items():
        group = driver.coordinator.groups[group_id]
        assert group.state is (GroupState.STABLE if value.members else GroupState.EMPTY)
        assert group.generation_id == value.generation
        stored = {m.member_id: m.assignment for m in value.members}
        assert {m.member_id: m.assignment for m in group.members.values()} == stored


@settings(max_examples=60)
@given(step_lists)
def test_unloading_answers_everything(steps: list[Step]) -> None:
    play = played(steps)
    play.driver.unload()
    play.collect()
    assert not play.tokens
