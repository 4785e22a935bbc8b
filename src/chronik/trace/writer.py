"""The writer thread: takes events from the tracer's queue into files, off the event loop.

It wakes by itself every flush interval, so that `emit` needs no signal. A failed write (disk full)
costs trace events, which are counted and reported; it never costs the node.
"""

import threading

import pyarrow as pa

from chronik.trace.columns import ROWS_MAX, Columns
from chronik.trace.events import EventKind, TraceEvent
from chronik.trace.files import RotatingFiles
from chronik.trace.packed import Packed
from chronik.trace.tracer import Tracer


class TraceWriter:
    """One thread, from `start` to `close`."""

    def __init__(self, tracer: Tracer, files: RotatingFiles, flush_interval_s: float) -> None:
        self.written = 0
        self.last_error: str | None = None
        self._tracer = tracer
        self._files = files
        self._columns = Columns()
        self._flush_interval_s = flush_interval_s
        self._wake = threading.Condition()
        self._closing = False
        self._flushes_asked = 0
        self._flushes_done = 0
        self._thread = threading.Thread(target=self._run, name="chronik-trace", daemon=True)

    def start(self) -> None:
        """Begins writing; `STARTED` is the first event."""
        self._tracer.emit(EventKind.STARTED)
        self._thread.start()

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Blocks until every event emitted before the call is in a file, or counted as dropped."""
        with self._wake:
            self._flushes_asked += 1
            mine = self._flushes_asked
            self._wake.notify_all()
            return self._wake.wait_for(lambda: self._flushes_done >= mine, timeout_s)

    def close(self, timeout_s: float = 10.0) -> None:
        """Writes what is queued and ends the file; `STOPPED` is the last event."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        closing = False
        while not closing:
            with self._wake:
                self._wake.wait_for(self._is_called, self._flush_interval_s)
                closing, asked = self._closing, self._flushes_asked
            self._write_queue()
            if closing:
                self._write([self._tracer.row(EventKind.STOPPED, self.written, "")])
                self._end_file()
            with self._wake:
                self._flushes_done = asked
                self._wake.notify_all()

    def _is_called(self) -> bool:
        return self._closing or self._flushes_asked > self._flushes_done

    def _write_queue(self) -> None:
        # The count is taken once: a fast producer cannot keep this turn from ending.
        left = self._tracer.puts
        while left > 0:
            puts = min(left, ROWS_MAX)
            self._write_packed(self._tracer.take_packed(puts))
            left -= puts
        self._report_drops()
        self._report_expired()
        self._rotate()

    def _write_packed(self, packed: Packed) -> None:
        try:
            batches = self._columns.batches(packed)
        except pa.ArrowException as error:
            self._lose(len(packed), error)
            return
        for batch in batches:
            try:
                self._files.write_batch(batch)
            except OSError as error:
                self._lose(batch.num_rows, error)
            else:
                self.written += batch.num_rows

    def _write(self, rows: list[TraceEvent]) -> None:
        try:
            self._files.write(rows)
        except OSError as error:
            self._lose(len(rows), error)
        else:
            self.written += len(rows)

    def _lose(self, count: int, error: Exception) -> None:
        self.last_error = str(error)
        self._tracer.count_lost(count, str(error))

    def _report_drops(self) -> None:
        drops = self._tracer.take_drops()
        if drops is None:
            return
        try:
            self._files.write([drops])
        except OSError as error:
            self.last_error = str(error)
            self._tracer.return_drops(drops)

    def _report_expired(self) -> None:
        for name, size in self._files.take_expired():
            row = self._tracer.row(EventKind.EXPIRED, 0, name)
            self._write([row._replace(bytes=size, record_count=None)])

    def _rotate(self) -> None:
        try:
            self._files.rotate_if_due()
        except OSError as error:
            self.last_error = str(error)

    def _end_file(self) -> None:
        try:
            self._files.close()
        except OSError as error:
            self.last_error = str(error)
