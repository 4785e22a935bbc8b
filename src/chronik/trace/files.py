"""Trace files: Arrow IPC streams that rotate by size and age and stay within a total of bytes.

A stream, not an Arrow file, because a stream has no footer: after kill -9 it is readable up to the
last batch handed to the kernel. Names sort by node and start time: `trace-<node>-<wall ns>.arrows`.
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from chronik.trace.batches import to_batch
from chronik.trace.events import Row
from chronik.trace.schema import arrow_schema
from chronik.trace.settings import FileLimits
from chronik.trace.tracer import NanosClock

SUFFIX = ".arrows"
BUFFER_BYTES = 1 << 20
"""Gathers the many small writes of one batch into few system calls; flushed after each batch."""


def trace_files(directory: Path, node: int | None = None) -> list[Path]:
    """The files of one node, or of all, oldest first per node."""
    pattern = f"trace-{'*' if node is None else node}-*{SUFFIX}"
    return sorted(directory.glob(pattern))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class RotatingFiles:
    """Writes batches to the newest file of a directory. One thread at a time; all calls block."""

    def __init__(
        self,
        directory: Path,
        node: int,
        wall_ns: NanosClock,
        mono_ns: NanosClock,
        limits: FileLimits,
    ) -> None:
        self.directory = directory
        self.node = node
        self.limits = limits
        self._wall_ns = wall_ns
        self._mono_ns = mono_ns
        self._file: pa.NativeFile | None = None
        self._stream: pa.RecordBatchStreamWriter | None = None
        self._opened_mono_ns = 0
        self._expired: list[tuple[str, int]] = []

    def write(self, rows: Sequence[Row]) -> None:
        """As `write_batch`, of single rows."""
        self.write_batch(to_batch(rows))

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """With the kernel on return; after an OSError a new file follows."""
        try:
            if self._stream is None:
                self._open()
            assert self._stream is not None
            assert self._file is not None
            self._stream.write_batch(batch)
            self._file.flush()
        except OSError:
            self._give_up()
            raise

    def rotate_if_due(self) -> bool:
        """Ends the file that is too large or too old; the next batch opens another."""
        if self._file is None:
            return False
        age_s = (self._mono_ns() - self._opened_mono_ns) / 1e9
        if self._file.tell() < self.limits.file_bytes_max and age_s < self.limits.file_age_s_max:
            return False
        self.close()
        return True

    def take_expired(self) -> list[tuple[str, int]]:
        """Names and sizes of the files deleted since the last call, for the record."""
        gone, self._expired = self._expired, []
        return gone

    def close(self) -> None:
        """Ends the stream with its end mark."""
        try:
            if self._stream is not None:
                self._stream.close()
            if self._file is not None:
                self._file.close()
        finally:
            self._stream = self._file = None

    def _open(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._expire()
        path = self._next_path()
        # Handing 24 small columns to Arrow's threads costs more than compressing them.
        options = pa.ipc.IpcWriteOptions(compression=self.limits.compression, use_threads=False)
        raw = pa.OSFile(str(path), mode="wb")
        self._file = pa.BufferedOutputStream(raw, BUFFER_BYTES)
        self._stream = pa.ipc.new_stream(self._file, arrow_schema(), options=options)
        self._opened_mono_ns = self._mono_ns()

    def _expire(self) -> None:
        """Deletes the oldest files until there is room for a whole new one within the bounds."""
        sizes = [(path, _size(path)) for path in trace_files(self.directory, self.node)]
        bytes_left = self.limits.total_bytes_max - self.limits.file_bytes_max
        total = sum(size for _, size in sizes)
        while sizes and (total > bytes_left or len(sizes) >= self.limits.files_max):
            path, size = sizes.pop(0)
            path.unlink(missing_ok=True)
            total -= size
            self._expired.append((path.name, size))

    def _next_path(self) -> Path:
        """A name after all others of this node, also when the wall clock went back."""
        taken = trace_files(self.directory, self.node)
        newest_ns = int(taken[-1].stem.rpartition("-")[2]) if taken else 0
        start_ns = max(self._wall_ns(), newest_ns + 1)
        return self.directory / f"trace-{self.node}-{start_ns:020d}{SUFFIX}"

    def _give_up(self) -> None:
        """After a failed write the stream's state is unknown: what is whole stays readable."""
        try:
            self.close()
        except OSError:
            self._stream = self._file = None
