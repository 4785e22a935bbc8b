"""Leader and followers: single steps, then three replicas under loss, reordering and crashes."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.replica.batches import NOW_MS, batch

from chronik.model.errors import ErrorCode
from chronik.model.limits import INHERITED_SEQUENCE_MS
from chronik.replica.producers import ProducerTable, SequenceRefusedError
from chronik.replica.state import Appended, ReplicaState
from chronik.wire.records import patch, read_header

NODES = (1, 2, 3)


def leader(log_end: int = 0, isr: tuple[int, ...] = NODES, epoch: int = 1) -> ReplicaState:
    """Node 1, which has just become the leader of a log that is committed to its half."""
    state = ReplicaState(0, 0, log_end, high_watermark=log_end // 2)
    state.is_leader = False
    state.lead(epoch, (2, 3), isr, NOW_MS)
    return state


def follower(log_end: int = 0, epoch: int = 1, high_watermark: int = 0) -> ReplicaState:
    state = ReplicaState(epoch, 0, log_end, high_watermark=high_watermark)
    state.follow(epoch)
    return state


def append(state: ReplicaState, count: int = 1) -> Appended:
    appended = state.append(*batch(count), NOW_MS)
    assert isinstance(appended, Appended)
    return appended


def copied(state: ReplicaState, base_offset: int, epoch: int) -> None:
    data, _ = batch()
    patch(data, base_offset, epoch)
    state.take_over(data, read_header(data))


def test_fm28_the_watermark_is_the_least_end_in_the_isr() -> None:
    state = leader(isr=(1, 2))
    append(state, 10)
    state.made_durable(10)
    assert state.high_watermark == 0
    state.follower_fetched(3, 10, NOW_MS)  # not in the ISR: it does not count
    assert state.high_watermark == 0
    assert state.follower_fetched(2, 4, NOW_MS)
    assert state.high_watermark == 4


def test_fm23_a_leader_counts_its_own_disk_too() -> None:
    state = leader(isr=(1, 2))
    append(state, 10)
    state.follower_fetched(2, 10, NOW_MS)
    assert state.high_watermark == 0
    assert state.made_durable(10)
    assert state.high_watermark == 10


def test_fm22_a_follower_that_restarts_with_less_does_not_move_the_watermark_back() -> None:
    state = leader(isr=(1, 2))
    append(state, 10)
    state.made_durable(10)
    state.follower_fetched(2, 10, NOW_MS)
    state.follower_fetched(2, 3, NOW_MS)
    assert state.high_watermark == 10


def test_fm22_a_new_leader_waits_for_its_followers() -> None:
    state = leader(log_end=10)
    assert (state.high_watermark, state.epoch_start) == (5, 10)
    state.follower_fetched(2, 10, NOW_MS)
    assert state.high_watermark == 5
    assert state.follower_fetched(3, 10, NOW_MS)
    assert state.high_watermark == 10


def test_a_follower_joins_only_with_all_that_is_committed_and_inherited() -> None:
    state = leader(log_end=10, isr=(1,))
    append(state, 2)
    state.made_durable(12)
    assert state.high_watermark == 12
    for offset, expected in ((5, set()), (10, set()), (12, {2})):
        state.follower_fetched(2, offset, NOW_MS)
        assert state.may_join_isr() == expected


def test_a_follower_that_is_about_to_join_holds_the_watermark() -> None:
    """KIP-497: the controller may agree at any moment."""
    state = leader(isr=(1,))
    state.follower_fetched(2, 0, NOW_MS)
    state.maximal_isr |= state.may_join_isr()
    append(state)
    state.made_durable(1)
    assert state.high_watermark == 0


def test_a_follower_leaves_the_isr_only_after_lagging_for_long() -> None:
    state = leader(isr=(1, 2, 3))
    append(state)
    state.made_durable(1)
    state.follower_fetched(3, 1, NOW_MS + 40)
    assert state.must_leave_isr(NOW_MS + 50, 100) == set()
    assert state.must_leave_isr(NOW_MS + 101, 100) == {2}


def test_fm32_a_follower_knows_a_watermark_only_as_far_as_its_disk_goes() -> None:
    state = follower()
    copied(state, 0, 1)
    copied(state, 1, 1)
    assert not state.leader_says(2, 0)
    state.made_durable(1)
    assert state.leader_says(2, 0)
    assert state.high_watermark == 1


def test_fm27_a_followers_log_start_follows() -> None:
    state = follower(log_end=10, high_watermark=4)
    state.leader_says(8, 6)
    assert (state.log_start, state.high_watermark) == (6, 8)
    state.leader_says(10, 3)
    assert state.log_start == 6


def test_what_is_committed_is_never_cut() -> None:
    state = follower(log_end=10, high_watermark=4)
    state.truncated(4, ProducerTable())
    assert (state.log_end, state.durable_end) == (4, 4)
    with pytest.raises(AssertionError):
        state.truncated(3, ProducerTable())


def test_fm50_epochs_only_grow() -> None:
    state = leader(epoch=5)
    with pytest.raises(AssertionError):
        state.follow(4)
    with pytest.raises(AssertionError):
        state.lead(4, (2, 3), NODES, NOW_MS)


def taken_over(sequences: tuple[int, ...]) -> ReplicaState:
    """A leader since NOW_MS of a log into which producer 9 sent these, one record each."""
    state = follower()
    for offset, sequence in enumerate(sequences):
        data, _ = batch(1, (9, 0, sequence))
        patch(data, offset, 1)
        state.take_over(data, read_header(data))
    state.lead(2, (2, 3), NODES, NOW_MS)
    return state


def refusal(state: ReplicaState, sequence: int, now_ms: int = NOW_MS) -> ErrorCode:
    with pytest.raises(SequenceRefusedError) as refused:
        state.append(*batch(1, (9, 0, sequence)), now_ms)
    return refused.value.code


def test_a_new_leader_waits_for_what_went_to_the_former_one() -> None:
    state = taken_over((0, 1))
    assert refusal(state, 3) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    late_ms = NOW_MS + INHERITED_SEQUENCE_MS
    assert refusal(state, 3, late_ms - 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(state, 3, late_ms) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for sequence in (2, 3):
        assert isinstance(state.append(*batch(1, (9, 0, sequence)), NOW_MS), Appended)
    assert refusal(state, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_leader_that_goes_on_in_a_new_epoch_has_all_that_was_sent_to_it() -> None:
    state = taken_over((0, 1))
    state.append(*batch(1, (9, 0, 2)), NOW_MS)
    state.lead(3, (2, 3), NODES, NOW_MS)
    assert refusal(state, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_fm29_a_follower_gives_no_offsets_and_a_leader_takes_none() -> None:
    with pytest.raises(AssertionError):
        append(follower())
    with pytest.raises(AssertionError):
        copied(leader(), 0, 1)


# ---- three replicas


@dataclass(frozen=True)
class Assignment:
    """What the controller has decided; its position in the history is the partition epoch."""

    leader: int
    epoch: int
    isr: frozenset[int]


@dataclass(frozen=True)
class Fetch:
    sender: int
    process: int
    to: int
    offset: int
    epoch: int
    last_epoch: int


@dataclass(frozen=True)
class Answer:
    fetch: Fetch
    records: tuple[tuple[int, int], ...]
    high_watermark: int
    cut_at: int | None = None


@dataclass
class Node:
    """A replica with its log as a list of (epoch, value)."""

    id: int
    state: ReplicaState
    log: list[tuple[int, int]] = field(default_factory=list)
    process: int = 1
    alive: bool = True
    seen: int = 0
    proposed: tuple[int, frozenset[int]] | None = None
    told: tuple[int, int] | None = None

    def epoch_end(self, epoch: int) -> int:
        """Where the log's records of epochs up to `epoch` end."""
        return sum(one <= epoch for one, _ in self.log[: self.state.durable_end])


class Replicas(RuleBasedStateMachine):
    """The driver's rules on the real states; the checks are on what any leader called committed."""

    def __init__(self) -> None:
        super().__init__()
        self.history = [Assignment(1, 1, frozenset(NODES))]
        self.live = set(NODES)
        self.nodes = {one: Node(one, ReplicaState(0, 0, 0)) for one in NODES}
        self.fetches: list[Fetch] = []
        self.answers: list[Answer] = []
        self.committed: list[tuple[int, int]] = []
        self.value = 0
        for node in self.nodes.values():
            node.state.is_leader = False
            self._assign(node)

    # -- the controller

    def _decide(self, isr: frozenset[int]) -> None:
        old = self.history[-1]
        able = sorted(isr & self.live)
        elected = old.leader if old.leader in able else next(iter(able), -1)
        epoch = old.epoch + (elected != old.leader)
        self.history.append(Assignment(elected, epoch, isr))
        if elected >= 0 and elected != old.leader:
            node = self.nodes[elected]
            kept = node.log[: node.state.durable_end]
            assert kept[: len(self.committed)] == self.committed, (
                "elected without what is committed"
            )

    @rule(node=st.sampled_from(NODES))
    def fence(self, node: int) -> None:
        """A session ends: the process is dead, or only thought to be."""
        self.live.discard(node)
        isr = self.history[-1].isr
        self._decide(frozenset(isr & self.live) or isr)

    @rule(node=st.sampled_from(NODES))
    def unfence(self, node: int) -> None:
        if self.nodes[node].alive and node not in self.live:
            self.live.add(node)
            self._decide(self.history[-1].isr)

    @rule(node=st.sampled_from(NODES))
    def learn(self, node: int) -> None:
        """The next piece of metadata arrives."""
        found = self.nodes[node]
        if found.alive and found.seen < len(self.history) - 1:
            found.seen += 1
            self._assign(found)

    def _assign(self, node: Node) -> None:
        assigned = self.history[node.seen]
        if assigned.leader == node.id:
            others = [one for one in NODES if one != node.id]
            joining = node.proposed[1] if node.proposed is not None else frozenset()
            node.state.lead(assigned.epoch, others, assigned.isr | joining, NOW_MS)
        elif node.state.is_leader or assigned.epoch != node.state.leader_epoch:
            node.state.follow(assigned.epoch)

    @rule(node=st.sampled_from(NODES), leaving=st.sets(st.sampled_from(NODES), max_size=1))
    def propose(self, node: int, leaving: set[int]) -> None:
        found = self.nodes[node]
        if found.alive and found.state.is_leader and found.proposed is None:
            state = found.state
            others = (state.maximal_isr | state.may_join_isr()) - leaving
            state.maximal_isr |= others
            found.proposed = (found.seen, frozenset(others | {node}))

    @rule(node=st.sampled_from(NODES), answered=st.booleans())
    def settle(self, node: int, answered: bool) -> None:
        """The proposal arrives, however late; its answer arrives, or it is repeated."""
        found = self.nodes[node]
        if found.proposed is None:
            return
        version, isr = found.proposed
        if version == len(self.history) - 1 and isr <= self.live:
            self._decide(isr)
        if answered and found.alive:
            found.seen, found.proposed = len(self.history) - 1, None
            self._assign(found)

    # -- the nodes

    @rule(node=st.sampled_from(NODES))
    def produce(self, node: int) -> None:
        found = self.nodes[node]
        if found.alive and found.state.is_leader:
            append(found.state)
            self.value += 1
            found.log.append((found.state.leader_epoch, self.value))

    @rule(node=st.sampled_from(NODES))
    def flush(self, node: int) -> None:
        found = self.nodes[node]
        if found.alive:
            found.state.made_durable(found.state.log_end)
            epoch, watermark = found.told or (-1, -1)
            if not found.state.is_leader and found.state.leader_epoch == epoch:
                found.state.leader_says(watermark, 0)
            found.told = None

    @rule(node=st.sampled_from(NODES))
    def crash(self, node: int) -> None:
        found = self.nodes[node]
        found.alive = False
        del found.log[found.state.durable_end :]

    @rule(node=st.sampled_from(NODES), forgotten=st.integers(0, 3))
    def restart(self, node: int, forgotten: int) -> None:
        """It comes back fenced, knows all metadata, and of its watermark an old checkpoint."""
        found = self.nodes[node]
        if found.alive:
            return
        self.live.discard(node)
        isr = self.history[-1].isr
        self._decide(frozenset(isr & self.live) or isr)
        checkpoint = max(0, found.state.high_watermark - forgotten)
        found.state = ReplicaState(0, 0, len(found.log), high_watermark=checkpoint)
        found.state.is_leader = False
        found.proposed = found.told = None
        found.process, found.alive, found.seen = found.process + 1, True, len(self.history) - 1
        self._assign(found)

    # -- replication

    @rule(node=st.sampled_from(NODES))
    def ask(self, node: int) -> None:
        found = self.nodes[node]
        to = self.history[found.seen].leader
        if found.alive and not found.state.is_leader and to >= 0:
            end = found.state.durable_end
            last_epoch = found.log[end - 1][0] if end else -1
            epoch = found.state.leader_epoch
            self.fetches.append(Fetch(node, found.process, to, end, epoch, last_epoch))

    @precondition(lambda self: self.fetches)
    @rule(data=st.data(), lost=st.booleans(), count=st.integers(0, 3))
    def serve(self, data: st.DataObject, lost: bool, count: int) -> None:
        fetch = self.fetches.pop(data.draw(st.integers(0, len(self.fetches) - 1)))
        if not lost:
            self._serve(fetch, count)

    def _serve(self, fetch: Fetch, count: int) -> None:
        node = self.nodes[fetch.to]
        state = node.state
        if not node.alive or not state.is_leader or state.leader_epoch != fetch.epoch:
            return
        end = node.epoch_end(fetch.last_epoch)
        has_epoch = any(one == fetch.last_epoch for one, _ in node.log[:end])
        if fetch.last_epoch >= 0 and (not has_epoch or fetch.offset > end):
            self.answers.append(Answer(fetch, (), -1, cut_at=end))
            return
        state.follower_fetched(fetch.sender, fetch.offset, NOW_MS)
        stop = min(fetch.offset + count, state.durable_end)
        records = tuple(node.log[fetch.offset : stop])
        self.answers.append(Answer(fetch, records, state.high_watermark))

    @precondition(lambda self: self.answers)
    @rule(data=st.data(), lost=st.booleans())
    def take(self, data: st.DataObject, lost: bool) -> None:
        answer = self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))
        if not lost:
            self._take(answer)

    def _take(self, answer: Answer) -> None:
        fetch, node = answer.fetch, self.nodes[answer.fetch.sender]
        state = node.state
        if not node.alive or node.process != fetch.process or state.is_leader:
            return
        if (state.log_end, state.leader_epoch) != (fetch.offset, fetch.epoch):
            return  # the driver's rule: an answer to a question that it would no longer ask
        if answer.cut_at is not None:
            target = min(answer.cut_at, node.epoch_end(fetch.last_epoch))
            assert target >= state.high_watermark, "the leader lacks what is committed"
            state.truncated(target, ProducerTable())
            del node.log[target:]
            return
        for epoch, value in answer.records:
            copied(state, len(node.log), epoch)
            node.log.append((epoch, value))
        node.told = (fetch.epoch, answer.high_watermark)

    @rule(node=st.sampled_from(NODES), rounds=st.integers(1, 3))
    def replicate(self, node: int, rounds: int) -> None:
        """A while without faults, so that replicas get somewhere."""
        for _ in range(rounds):
            before = len(self.fetches), len(self.answers)
            self.ask(node)
            if len(self.fetches) > before[0]:
                self._serve(self.fetches.pop(), 2)
            if len(self.answers) > before[1]:
                self._take(self.answers.pop())
            self.flush(node)

    @rule()
    def learn_all(self) -> None:
        for node in NODES:
            while self.nodes[node].alive and self.nodes[node].seen < len(self.history) - 1:
                self.learn(node)

    # -- what must hold

    @invariant()
    def committed_records_are_never_lost_nor_changed(self) -> None:
        for node in self.nodes.values():
            known = node.log[: node.state.high_watermark]
            if len(known) > len(self.committed):
                assert known[: len(self.committed)] == self.committed
                self.committed = known
            assert known == self.committed[: len(known)], "replicas differ below the watermark"

    @invariant()
    def a_watermark_lies_in_what_is_durable(self) -> None:
        for node in self.nodes.values():
            state = node.state
            assert state.high_watermark <= state.durable_end <= state.log_end
            assert not node.alive or state.log_end == len(node.log)


Replicas.TestCase.settings = settings(max_examples=60, stateful_step_count=80)
TestReplicas = Replicas.TestCase


def own_disk_alone(state: ReplicaState) -> bool:
    return state._advance_watermark(state.durable_end)


def wherever_it_was(state: ReplicaState, node_id: int, offset: int, *_: int) -> bool:
    state.followers[node_id].end = offset + 1
    return state._recompute_watermark()


@pytest.mark.parametrize(
    ("method", "bug"),
    [
        ("_recompute_watermark", own_disk_alone),
        ("follower_fetched", wherever_it_was),
    ],
)
def test_planted_bugs_are_found(
    monkeypatch: pytest.MonkeyPatch, method: str, bug: Callable[..., object]
) -> None:
    """The proof that the checks above can fail."""
    monkeypatch.setattr(ReplicaState, method, bug)
    limits = settings(
        max_examples=400,
        stateful_step_count=80,
        database=None,
        phases=[Phase.generate],
        derandomize=True,
        report_multiple_bugs=False,  # one is enough
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Replicas, settings=limits)
