"""Where events go: nowhere, a ring in memory, or rotating files. One call opens each of them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chronik.trace.settings import TraceSettings
from chronik.trace.tracer import OFF, NanosClock, Tracer

if TYPE_CHECKING:
    from chronik.trace.writer import TraceWriter


@dataclass(slots=True)
class Trace:
    """An open sink. Hand `tracer` to whoever emits; `flush` and `close` block: for the owner."""

    tracer: Tracer
    writer: "TraceWriter | None" = None

    def flush(self) -> bool:
        """True once every event emitted so far is where it can be read."""
        return self.writer is None or self.writer.flush()

    def close(self) -> None:
        """Ends the files; events emitted later stay in the queue and are never written."""
        if self.writer is not None:
            self.writer.close()


def open_trace(
    settings: TraceSettings, node: int, wall_ns: NanosClock, mono_ns: NanosClock
) -> Trace:
    """The sink the settings ask for. Only files start a thread and load pyarrow."""
    if settings.mode == "off":
        return Trace(OFF)
    if settings.mode == "memory":
        ring = Tracer(node, wall_ns, mono_ns, events_max=settings.events_max, keep_newest=True)
        return Trace(ring)
    return _open_files(settings, node, wall_ns, mono_ns)


def _open_files(
    settings: TraceSettings, node: int, wall_ns: NanosClock, mono_ns: NanosClock
) -> Trace:
    from chronik.trace.files import RotatingFiles  # noqa: PLC0415 - loads pyarrow
    from chronik.trace.writer import TraceWriter  # noqa: PLC0415

    assert settings.directory is not None
    tracer = Tracer(node, wall_ns, mono_ns, events_max=settings.events_max)
    files = RotatingFiles(settings.directory, node, wall_ns, mono_ns, settings.limits)
    writer = TraceWriter(tracer, files, settings.flush_interval_s)
    writer.start()
    return Trace(tracer, writer)
