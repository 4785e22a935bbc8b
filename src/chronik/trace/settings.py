"""What a node is told about its traces; checked before anything opens, without loading pyarrow."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from chronik.model.limits import TRACE_EVENTS_QUEUED_MAX
from chronik.model.settings import TraceMode


@dataclass(frozen=True, slots=True)
class FileLimits:
    """When a file ends and how much the directory may hold."""

    file_bytes_max: int = 64 * 1024 * 1024
    file_age_s_max: float = 300.0
    total_bytes_max: int = 4 * 1024 * 1024 * 1024
    files_max: int = 1_000
    """Also bounds a node that crashes again and again and leaves a small file each time."""
    compression: Literal["lz4", "zstd"] | None = "lz4"

    def __post_init__(self) -> None:
        if not 0 < self.file_bytes_max <= self.total_bytes_max:
            raise ValueError("file_bytes_max must be positive and at most total_bytes_max")


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """What a node is told about its traces."""

    mode: TraceMode = "off"
    directory: Path | None = None
    events_max: int = TRACE_EVENTS_QUEUED_MAX
    flush_interval_s: float = 0.5
    """What a kill -9 may cost. A batch has its price however few events it has: about a millisecond
    of the processor, which is why this is no shorter."""
    limits: FileLimits = FileLimits()

    def __post_init__(self) -> None:
        if self.mode == "files" and self.directory is None:
            raise ValueError("trace files need a directory")
