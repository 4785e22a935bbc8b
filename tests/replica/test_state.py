"""One replica against a model of it: a plain list of records, some durable, some not."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.replica.batches import NOW_MS, batch, placed

from chronik.model.errors import ErrorCode
from chronik.replica.producers import SequenceRefusedError
from chronik.replica.state import Appended, Duplicate, ReplicaState

PRODUCERS = 3


def append(
    state: ReplicaState, count: int = 1, producer: tuple[int, int, int] = (-1, -1, -1)
) -> Appended | Duplicate:
    data, header = batch(count, producer)
    return state.append(data, header, NOW_MS)


def appended(state: ReplicaState, count: int = 1) -> Appended:
    result = append(state, count)
    assert isinstance(result, Appended)
    return result


def test_fm20_an_append_takes_its_offsets_and_moves_the_end_in_one_step() -> None:
    state = ReplicaState(leader_epoch=4, log_start=0, log_end=100)
    first, second = appended(state, 3), appended(state, 2)
    assert (first.base_offset, first.last_offset) == (100, 102)
    assert (second.base_offset, second.last_offset) == (103, 104)
    assert placed(first.buffer) == (100, 4)
    assert placed(second.buffer) == (103, 4)


def test_fm23_what_is_not_durable_is_not_committed() -> None:
    state = ReplicaState(0, 0, 0)
    appended(state, 3)
    assert (state.log_end, state.durable_end, state.high_watermark) == (3, 0, 0)
    assert state.made_durable(3)
    assert (state.durable_end, state.high_watermark) == (3, 3)


def test_fm22_a_late_callback_does_not_move_the_watermark_back() -> None:
    state = ReplicaState(0, 0, 0)
    appended(state, 5)
    assert state.made_durable(5)
    assert not state.made_durable(2)
    assert state.high_watermark == state.durable_end == 5


def test_nothing_becomes_durable_that_was_not_appended() -> None:
    with pytest.raises(AssertionError):
        ReplicaState(0, 0, 3).made_durable(4)


def test_only_the_newest_appends_can_be_undone() -> None:
    state = ReplicaState(0, 0, 0)
    first, second = appended(state), appended(state)
    with pytest.raises(AssertionError):
        state.undo([first], state.durable_end)
    state.undo([first, second], state.durable_end)
    assert state.log_end == 0


def test_a_durable_append_cannot_be_undone() -> None:
    state = ReplicaState(0, 0, 0)
    one = appended(state)
    state.made_durable(1)
    with pytest.raises(AssertionError):
        state.undo([one], state.durable_end)


def test_fm27_the_log_start_only_moves_up_and_not_past_the_watermark() -> None:
    state = ReplicaState(0, 0, 10)
    state.advance_start(7)
    state.advance_start(3)
    assert state.log_start == 7
    with pytest.raises(AssertionError):
        state.advance_start(11)


@dataclass
class Sent:
    """A batch that a producer has sent, and where the model says it is."""

    producer: tuple[int, int, int]
    count: int
    base_offset: int


class Replica(RuleBasedStateMachine):
    """FM 20, 22, 23, 70-72 on one node: any order of appends, retries, syncs and refusals."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ReplicaState(0, 0, 0)
        self.log: list[tuple[Appended, Sent]] = []
        self.epochs = [0] * PRODUCERS
        self.seen_watermark = 0

    @initialize(start=st.integers(0, 2**40))
    def begin(self, start: int) -> None:
        self.state = ReplicaState(leader_epoch=1, log_start=start, log_end=start)
        self.seen_watermark = self.first = start

    def end(self) -> int:
        return self.log[-1][0].last_offset + 1 if self.log else self.first

    def batches_of(self, number: int) -> list[Sent]:
        wanted = (number, self.epochs[number])
        return [sent for _, sent in self.log if sent.producer[:2] == wanted]

    def next_sequence(self, number: int) -> int:
        batches = self.batches_of(number)
        return batches[-1].producer[2] + batches[-1].count if batches else 0

    def take(self, count: int, producer: tuple[int, int, int]) -> None:
        expected = self.end()
        result = append(self.state, count, producer)
        assert isinstance(result, Appended)
        assert result.base_offset == expected
        assert placed(result.buffer) == (expected, 1)
        self.log.append((result, Sent(producer, count, expected)))

    @rule(count=st.integers(1, 1000))
    def append_plain(self, count: int) -> None:
        self.take(count, (-1, -1, -1))

    @rule(number=st.integers(0, PRODUCERS - 1), count=st.integers(1, 9))
    def append_sequenced(self, number: int, count: int) -> None:
        self.take(count, (number, self.epochs[number], self.next_sequence(number)))

    @rule(number=st.integers(0, PRODUCERS - 1), back=st.integers(1, 5))
    def retry(self, number: int, back: int) -> None:
        batches = self.batches_of(number)
        if len(batches) >= back:
            sent = batches[-back]
            result = append(self.state, sent.count, sent.producer)
            assert isinstance(result, Duplicate)
            assert result.base_offset == sent.base_offset

    @rule(number=st.integers(0, PRODUCERS - 1), gap=st.integers(1, 100))
    def skip(self, number: int, gap: int) -> None:
        if self.batches_of(number):
            sequence = self.next_sequence(number) + gap
            with pytest.raises(SequenceRefusedError) as refused:
                append(self.state, 1, (number, self.epochs[number], sequence))
            entry = self.state.producers.get(number)
            assert entry is not None
            waits = ErrorCode.KAFKA_STORAGE_ERROR  # for what the disk refused, to come again
            wrong = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert refused.value.code is (waits if entry.refused else wrong)

    @rule(number=st.integers(0, PRODUCERS - 1))
    def bump_epoch(self, number: int) -> None:
        self.epochs[number] += 1
        self.append_sequenced(number, 1)

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        upto = data.draw(st.integers(0, len(self.log) - 1))
        self.state.made_durable(self.log[upto][0].last_offset + 1)

    @rule()
    def refuse(self) -> None:
        lost = [item for item in self.log if item[0].base_offset >= self.state.durable_end]
        self.state.undo([one for one, _ in lost], self.state.durable_end)
        del self.log[len(self.log) - len(lost) :]
        for number in range(PRODUCERS):
            self.epochs[number] = max(
                (s.producer[1] for _, s in self.log if s.producer[0] == number),
                default=self.epochs[number],
            )

    @invariant()
    def offsets_are_in_order(self) -> None:
        state = self.state
        assert state.log_start <= state.high_watermark <= state.durable_end <= state.log_end
        assert state.log_end == (self.end() if self.log else state.log_end)

    @invariant()
    def watermark_never_moves_back(self) -> None:
        assert self.state.high_watermark >= self.seen_watermark
        self.seen_watermark = self.state.high_watermark


TestReplica = Replica.TestCase
TestReplica.settings = settings(max_examples=60, stateful_step_count=40)
