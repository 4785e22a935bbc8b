"""The one place that reads the clocks; everything else takes a `Clock`."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for timestamps, monotonic time for durations."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""

    def now_ns(self) -> int:
        """Nanoseconds since 1970."""

    def monotonic_ns(self) -> int:
        """Nanoseconds that only go forward."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    now_ns = staticmethod(time.time_ns)
    monotonic_ns = staticmethod(time.monotonic_ns)
