"""Idempotent producers as KIP-98 has them; the codes are those of Kafka's ProducerStateManager."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.replica.batches import NOW_MS, batch

from chronik.model import limits
from chronik.model.errors import ErrorCode
from chronik.replica.producers import (
    SEQUENCE_MAX,
    ProducerTable,
    SequencedBatch,
    SequenceRefusedError,
)


def send(
    table: ProducerTable,
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    producer_id: int = 9,
    offset: int | None = None,
) -> SequencedBatch | None:
    """One batch as an owner takes it; the original where it was sent before."""
    _, header = batch(count, (producer_id, epoch, sequence))
    original = table.check(header)
    if original is None:
        table.advance(header, sequence if offset is None else offset, NOW_MS)
    return original


def refusal(table: ProducerTable, sequence: int, count: int = 1, epoch: int = 0) -> ErrorCode:
    with pytest.raises(SequenceRefusedError) as refused:
        send(table, sequence, count, epoch=epoch)
    return refused.value.code


def test_fm71_five_batches_in_order_are_taken() -> None:
    table = ProducerTable()
    for sequence in range(0, 50, 10):
        assert send(table, sequence, 10) is None
    entry = table.get(9)
    assert entry is not None
    assert entry.last_sequence == 49


def test_fm72_each_of_the_last_five_batches_is_known_with_its_offset() -> None:
    table = ProducerTable()
    for n in range(7):
        send(table, n * 3, 3, offset=100 + n * 3)
    for n in range(2, 7):
        original = send(table, n * 3, 3)
        assert original is not None
        assert (original.base_offset, original.last_offset) == (100 + n * 3, 102 + n * 3)


def test_fm72_a_duplicate_older_than_the_window_is_out_of_order() -> None:
    table = ProducerTable()
    for n in range(6):
        send(table, n)
    assert refusal(table, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_fm71_a_gap_is_refused_and_changes_nothing() -> None:
    table = ProducerTable()
    send(table, 0, 5)
    assert refusal(table, 6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(table, 5) is None


def test_a_batch_that_overlaps_a_known_one_is_no_duplicate() -> None:
    table = ProducerTable()
    send(table, 0, 5)
    assert refusal(table, 0, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(table, 3, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_fm75_an_older_epoch_is_fenced() -> None:
    table = ProducerTable()
    send(table, 0, epoch=3)
    assert refusal(table, 1, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_fm75_a_newer_epoch_starts_at_zero_and_forgets_the_older_batches() -> None:
    table = ProducerTable()
    send(table, 0, 5, epoch=0)
    assert refusal(table, 5, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(table, 0, 5, epoch=1, offset=40) is None
    original = send(table, 0, 5, epoch=1)
    assert original is not None
    assert original.base_offset == 40
    assert refusal(table, 5, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producer_that_was_forgotten_goes_on_anywhere() -> None:
    assert send(ProducerTable(), 1234) is None


def test_sequences_wrap_between_two_batches() -> None:
    table = ProducerTable()
    send(table, SEQUENCE_MAX)
    assert refusal(table, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(table, 0) is None


def test_sequences_wrap_inside_a_batch() -> None:
    table = ProducerTable()
    send(table, SEQUENCE_MAX - 1, 4, offset=10)
    entry = table.get(9)
    assert entry is not None
    assert entry.last_sequence == 1
    original = send(table, SEQUENCE_MAX - 1, 4)
    assert original is not None
    assert original.base_offset == 10
    assert send(table, 2) is None


def test_the_longest_silent_producer_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronik.replica.producers.PRODUCERS_PER_PARTITION_MAX", 3)
    table = ProducerTable()
    for producer_id in (1, 2, 3, 1, 4):
        sequence = 1 if table.get(producer_id) else 0
        send(table, sequence, producer_id=producer_id)
    assert [entry.producer_id for entry in table] == [3, 1, 4]
    assert limits.PRODUCERS_PER_PARTITION_MAX == 10_000


def test_silent_producers_expire() -> None:
    table = ProducerTable()
    send(table, 0)
    table.expire(NOW_MS)
    assert len(table) == 1
    table.expire(NOW_MS + 1)
    assert len(table) == 0


def test_fm70_what_the_disk_refused_can_be_sent_again() -> None:
    table = ProducerTable()
    send(table, 0, 2)
    before = list(table)
    _, header = batch(3, (9, 0, 2))
    former = table.advance(header, 2, NOW_MS)
    table.restore(9, former)
    assert [one._replace(refused=False) for one in table] == before
    # What was under way behind it is told to wait, not that records are lost.
    assert refusal(table, 5) is ErrorCode.KAFKA_STORAGE_ERROR
    assert send(table, 2, 3) is None
    assert refusal(table, 9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_fm71_after_a_refused_first_batch_the_second_does_not_overtake_it() -> None:
    """The disk refused sequence 0; the batch behind it was under way and must not become first."""
    table = ProducerTable()
    _, header = batch(3, (9, 0, 0))
    table.restore(9, table.advance(header, 0, NOW_MS))
    assert refusal(table, 3) is ErrorCode.KAFKA_STORAGE_ERROR
    assert send(table, 0, 3) is None
    assert send(table, 3) is None


def test_a_forgotten_producer_whose_batch_was_refused_still_goes_on_anywhere() -> None:
    table = ProducerTable()
    _, header = batch(3, (9, 0, 500))
    table.restore(9, table.advance(header, 0, NOW_MS))
    assert send(table, 500, 3) is None


@given(st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=30), st.integers(0, SEQUENCE_MAX))
def test_any_batch_sizes_follow_each_other_from_anywhere(sizes: list[int], first: int) -> None:
    table = ProducerTable()
    sequence, offset = first, 0
    for size in sizes:
        assert send(table, sequence, size, offset=offset) is None
        original = send(table, sequence, size)
        assert original is not None
        assert original.base_offset == offset
        sequence, offset = (sequence + size) % 2**31, offset + size


def test_what_went_to_the_leader_before_is_waited_for() -> None:
    """A producer may ask the new leader while its last request to the former one is open."""
    table = ProducerTable()
    send(table, 0, 5)
    _, ahead = batch(1, (9, 0, 8))
    with pytest.raises(SequenceRefusedError) as refused:
        table.check(ahead, inherited_end=5)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    send(table, 5, 3, offset=5)
    assert table.check(ahead, inherited_end=5) is None


def test_what_is_no_gap_in_an_inherited_log_is_not_waited_for() -> None:
    table = ProducerTable()
    for n in range(6):
        send(table, n, offset=n)
    _, old = batch(1, (9, 0, 0))
    with pytest.raises(SequenceRefusedError) as refused:
        table.check(old, inherited_end=6)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
