"""What a log refuses."""


class OffsetOutOfRangeError(LookupError):
    """The offset lies before the log's start or beyond its end."""


class LogFailedError(OSError):
    """The disk has not what the log has: it must be opened, or its last sync be tried, again."""
