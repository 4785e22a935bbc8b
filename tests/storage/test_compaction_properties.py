"""Compaction against a dict, round after round, and with the power cut at every call.

One seed is one history. The model is the list of all records ever appended; what a cleaning may
remove follows from it.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.compaction_support import (
    HOUR_MS,
    RULES,
    Sent,
    clean,
    keyed,
    planned,
    records_of,
    roll,
)
from tests.storage.support import DIRECTORY, NOW, append, new_disk, open_log, run

from chronik.sim.disk import PowerCutError
from chronik.storage.compaction import Compaction
from chronik.storage.compaction_map import ENTRY_BYTES
from chronik.storage.log import Log
from chronik.storage.segment import LogConfig
from chronik.wire.record_iter import Record, iter_records
from chronik.wire.records import batch_crc, read_header

KEYS = [b"a", b"b", b"c", b"d", b"long" * 10, b"longer" * 10]


class History:
    """A log, its disk, and every record it was given."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.disk = new_disk()
        self.config = LogConfig(
            segment_bytes=self.rng.choice([300, 1000, 5000]), index_interval_bytes=150
        )
        self.log: Log = open_log(self.disk, self.config)[0]
        self.appended: dict[int, Record] = {}
        self.now_ms = NOW
        self.sequences = dict.fromkeys(range(3), 0)
        self.producers: dict[int, int] = {}

    def append(self) -> None:
        rng, base = self.rng, self.log.end_offset
        pairs = [(self._key(), self._value()) for _ in range(rng.randint(1, 6))]
        sent = Sent(codec=rng.randrange(5), timestamp=self.now_ms)
        if rng.randrange(2):
            producer = rng.randrange(3)
            sent = sent._replace(producer=(producer, 0, self.sequences[producer]))
            self.sequences[producer] += len(pairs)
            self.producers[producer] = base + len(pairs) - 1
        made = keyed(base, pairs, sent)
        append(self.log, made)
        self.appended |= {one.offset: one for one in iter_records(made)}

    def _key(self) -> bytes | None:
        return self.rng.choice(KEYS) if self.rng.randrange(15) else None

    def _value(self) -> bytes | None:
        return self.rng.randbytes(self.rng.randint(0, 80)) if self.rng.randrange(4) else None

    def clean(self) -> None:
        before = {one.offset for one in records_of(self.log)}
        map_bytes_max = self.rng.choice([1, 3 * ENTRY_BYTES, 1 << 20])
        done = clean(
            self.log, RULES, self.now_ms, producers=self.producers, map_bytes_max=map_bytes_max
        )
        self.check()
        if done is not None and map_bytes_max == 1 << 20:
            self._check_is_clean_up_to(done.end_offset)
        uncleanable = self.log.segments[-1].base_offset if self.log.segments else 0
        after = {one.offset for one in records_of(self.log)}
        assert not [offset for offset in before - after if offset >= uncleanable]

    def pass_time(self) -> None:
        self.now_ms += self.rng.choice([1, HOUR_MS // 2, HOUR_MS])

    def reopen(self) -> None:
        self.log.storage.files.close()
        assert not self.disk.open_handles
        self.log = open_log(self.disk, self.config, verify=self.rng.randrange(2) == 0)[0]

    # Checks.

    def check(self) -> None:
        found = records_of(self.log)
        offsets = [one.offset for one in found]
        assert offsets == sorted(set(offsets)), "order is kept, nothing is there twice"
        assert all(one == self.appended[one.offset] for one in found), "what is left is unchanged"
        assert self.log.end_offset == len(self.appended)
        self._check_latest({one.offset for one in found})
        self._check_producers()

    def _check_latest(self, left: set[int]) -> None:
        latest = {one.key: one for one in self.appended.values() if one.key is not None}
        for key, last in latest.items():
            if last.value is not None:
                assert last.offset in left, "the latest value of a key is never lost"
            elif last.offset not in left:
                older = [o for o in left if self.appended[o].key == key]
                assert not older, "no value comes back when its tombstone goes"

    def _check_producers(self) -> None:
        last = {h.producer_id: h for h in self.log.headers(0) if h.has_producer_id}
        assert {one: header.last_offset for one, header in last.items()} == self.producers
        for producer, header in last.items():
            assert header.last_sequence == self.sequences[producer] - 1

    def _check_is_clean_up_to(self, end_offset: int) -> None:
        clean_part = [one for one in records_of(self.log) if one.offset < end_offset]
        keys = [one.key for one in clean_part]
        assert None not in keys
        assert len(keys) == len(set(keys)), "one record per key in the clean part"


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_whatever_is_cleaned_the_latest_values_and_all_offsets_stay(seed: int) -> None:
    history = History(seed)
    for _ in range(history.rng.randint(2, 4)):
        for _ in range(history.rng.randint(1, 12)):
            history.append()
        for _ in range(history.rng.randint(1, 2)):
            history.clean()
            history.pass_time()
        history.reopen()
        history.check()


def filled(seed: int) -> History:
    history = History(seed)
    for _ in range(10):
        history.append()
    roll(history.log)
    history.appended |= {one.offset: one for one in records_of(history.log)}
    history.log.config = history.config._replace(segment_bytes=1200)
    return history


def cut_while_cleaning(history: History, calls: int) -> bool:
    """True where the power went before the cleaning was done."""
    history.disk.power_cut_after = calls
    try:
        clean(history.log, RULES, history.now_ms, producers=history.producers)
    except PowerCutError:
        history.disk.crash(history.rng)
        return True
    history.disk.power_cut_after = None
    history.log.storage.files.close()
    return False


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.sweep) for seed in (1, 2))]
)
def test_fm54_a_power_cut_at_any_call_of_a_cleaning_costs_nothing(seed: int) -> None:
    calls, interrupted = 0, True
    while interrupted:
        history = filled(seed)
        interrupted = cut_while_cleaning(history, calls)
        history.log, report = open_log(history.disk, history.config, history.log.synced_offset)
        assert not report.damage
        names = history.disk.listdir(DIRECTORY)
        assert not [name for name in names if name.endswith((".swap", ".cleaned", ".tmp"))]
        history.check()
        history.append()
        history.clean()
        history.reopen()
        history.check()
        calls += 1
    assert calls > 20


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_fm54_recovery_itself_may_be_cut_while_it_finishes_a_swap(seed: int) -> None:
    history = filled(seed)
    if not cut_while_cleaning(history, history.rng.randrange(40)):
        return
    for calls in range(20):
        history.disk.power_cut_after = calls
        try:
            history.log, report = open_log(history.disk, history.config, history.log.synced_offset)
        except PowerCutError:
            history.disk.crash(history.rng)
            continue
        history.disk.power_cut_after = None
        assert not report.damage
        break
    history.check()


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_every_group_alone_leaves_a_log_that_is_right(seed: int) -> None:
    """A cleaning may end after any of its groups: the rest follows with the next one."""
    history = filled(seed)
    work = planned(history.log)
    assert work is not None
    compaction = Compaction(work, history.now_ms, history.producers)
    compaction.build_map()
    for group in compaction.groups():
        cleaned = compaction.rewrite(group, last=False)
        run(history.log, history.log.swap(cleaned))
        history.check()
        assert history.log.segments[0].summary().base_offset == 0
    for segment in history.log.segments:
        for position, header in segment.headers(0):
            batch = segment.batch(position, header)
            assert batch_crc(batch) == read_header(batch).crc
