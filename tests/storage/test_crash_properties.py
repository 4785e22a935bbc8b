"""Random operations on a disk that forgets, power cuts at any call: what was acknowledged is there.

One seed is one history. The model knows what must be in the log (synced), what may be in it
(applied or under way), and that nothing else may ever be served.
"""

import errno
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.storage.support import NOW, appendable, batch, new_disk, open_log, read_all

from chronik.sim.disk import PowerCutError
from chronik.storage.errors import LogFailedError
from chronik.storage.log import Log
from chronik.storage.operations import Operation
from chronik.storage.segment import LogConfig
from chronik.storage.write import Write
from chronik.wire.records import batch_crc, read_header, scan

Batches = list[bytes]


class History:
    """One log, its disk, and the model beside it."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.disk = new_disk()
        self.config = LogConfig(
            segment_bytes=self.rng.choice([300, 1000, 100_000]), index_interval_bytes=150
        )
        self.log: Log = open_log(self.disk, self.config)[0]
        self.applied: Batches = []
        self.synced_end = 0
        """Offsets below it were acknowledged as durable."""
        self.start = 0
        self.start_underway = 0
        self.underway: list[Batches] = []
        """Tails a crash may leave: of the write that runs, of writes that failed."""
        self.recovery_point = 0
        self.epoch = 0

    def step(self) -> None:
        kinds = [self.append] * 6 + [
            self.delete_records,
            self.truncate,
            self.expire,
            self.checkpoint,
            self.node_checkpoint,
            self.fail_some_call,
            self.reopen,
        ]
        self.rng.choice(kinds)()

    # Operations.

    def append(self) -> None:
        rng, end = self.rng, self.log.end_offset
        if rng.randrange(8) == 0:
            self.epoch += 1
        made = []
        for _ in range(rng.randint(1, 4)):
            count = rng.randint(1, 3)
            value = rng.randbytes(rng.randint(0, 120))
            made.append(batch(end, [NOW + end] * count, value=value, epoch=self.epoch))
            end += count
        self.underway.append(made)
        sync = rng.randrange(3) > 0
        if not self._run(self.log.prepare([appendable(data) for data in made], NOW), sync=sync):
            return
        self.underway.clear()
        self.applied += made
        if sync:
            self.synced_end = self.log.end_offset

    def delete_records(self) -> None:
        offset = self.rng.randint(0, self.log.end_offset)
        operation = self.log.advance_start(offset)
        if operation is not None:
            # A failed one may be on disk all the same.
            self.start_underway = max(self.start_underway, offset)
            if self._run(operation):
                self.start = self.log.start_offset

    def truncate(self) -> None:
        target = self.rng.randint(self.log.start_offset, self.log.end_offset)
        operation = self.log.truncate_to(target)
        # From here on only what is kept is promised.
        self.synced_end = min(self.synced_end, self.log.end_offset)
        if self._run(operation):
            self.underway.clear()
            self.applied = [b for b in self.applied if read_header(b).last_offset < target]

    def expire(self) -> None:
        size = self.rng.randint(0, self.log.size)
        operation = self.log.expire(NOW, -1, size, self.log.end_offset)
        if operation is not None:
            self.start_underway = max(self.start_underway, self.log.start_offset)
            if self._run(operation):
                self.underway.clear()
                self.start = self.log.start_offset

    def checkpoint(self) -> None:
        if self._run(self.log.checkpoint(closing=self.rng.randrange(2) == 0)):
            self.synced_end = self.log.end_offset

    def node_checkpoint(self) -> None:
        """The node's file of recovery points: it may be old when it is read."""
        self.recovery_point = self.log.synced_offset

    def fail_some_call(self) -> None:
        error = self.rng.choice([errno.ENOSPC, errno.EIO, errno.EROFS])
        self.disk.fail(None, error, after=self.rng.randrange(12))

    def reopen(self) -> None:
        """The process is killed; the operating system lives on."""
        self.disk.heal()
        self.log.storage.files.close()
        assert not self.disk.open_handles, "every descriptor is known to the table of open files"
        self._open()

    def _run(self, operation: Operation, *, sync: bool = True) -> bool:
        try:
            if isinstance(operation, Write):
                operation.execute(sync)
            else:
                operation.execute()
        except OSError:
            self.log.abort(operation)
            self.start_underway = max(self.start_underway, self.log.start_offset)
            if self.log.failed:
                with pytest.raises(LogFailedError):
                    self.log.prepare([], NOW)
                self.reopen()
            return False
        self.log.apply(operation)
        return True

    # Crashes and checks.

    def crash(self) -> None:
        self.disk.crash(self.rng)
        self._open()

    def _open(self) -> None:
        self.log, report = open_log(self.disk, self.config, self.recovery_point)
        assert all(damage.offset >= self.synced_end for damage in report.damage)
        found = self._served()
        assert self.start <= self.log.start_offset <= max(self.start_underway, self.start)
        assert self.log.end_offset >= self.synced_end
        self._check_is_a_possible_end(found)
        # Recovery synced what it serves.
        self.applied = found
        self.synced_end = self.log.end_offset
        self.start = self.start_underway = self.log.start_offset
        self.underway.clear()

    def _served(self) -> Batches:
        data = read_all(self.log)
        found = [data[at : at + header.size] for at, header in scan(data)]
        assert b"".join(found) == data
        assert all(batch_crc(b) == read_header(b).crc for b in found)
        return found

    def _check_is_a_possible_end(self, found: Batches) -> None:
        start = self.log.start_offset
        timelines = [self.applied, *(self.applied + tail for tail in self.underway)]
        kept = [[b for b in line if read_header(b).last_offset >= start] for line in timelines]
        assert any(line[: len(found)] == found for line in kept)

    def check(self) -> None:
        start = self.log.start_offset
        assert self._served() == [b for b in self.applied if read_header(b).last_offset >= start]


@settings(max_examples=80)
@given(seed=st.integers(0, 2**32))
@example(seed=19594)  # a log that was cut in the batch in which it starts
def test_fm54_whatever_happens_acknowledged_batches_are_read_back_identical(seed: int) -> None:
    history = History(seed)
    rng = history.rng
    for _ in range(rng.randint(1, 3)):
        for _ in range(rng.randint(1, 12)):
            history.step()
            history.check()
        history.disk.power_cut_after = rng.randrange(25)
        try:
            while True:
                history.step()
        except PowerCutError:
            history.crash()
    history.append()
    history.check()
