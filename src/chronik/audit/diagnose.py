"""From evidence to a cause: text logs, or the trace directory of a Chronik node.

A diagnosis shows the lines that support it and says "not enough evidence" when they do not suffice.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from chronik.audit import logs
from chronik.audit.diagnosis import Cause, Diagnosis, conclude
from chronik.audit.log_rules import RULES, not_by_retries
from chronik.audit.logs import LogEvent, read_log
from chronik.audit.trace_rules import diagnose_events
from chronik.audit.traces import FROZEN_NS
from chronik.trace.events import EventKind, TraceEvent
from chronik.trace.reader import events, read_table

_WANTED = (
    (
        logs.PRODUCE,
        "needed: PRODUCE REQUEST lines (base_offset, last_offset): were offsets given twice?",
    ),
    (logs.UPDATE, "needed: WATERMARK UPDATE lines (old, new): who moved the watermark?"),
    (logs.SUCCESS, "needed: FETCH START / FETCH SUCCESS lines: were the consumers answered?"),
)


def diagnose_logs(paths: Iterable[Path]) -> Diagnosis:
    return diagnose_log_events([event for path in paths for event in read_log(path)])


def diagnose_log_events(found: list[LogEvent]) -> Diagnosis:
    """Each file is judged by itself: lines of different runs prove nothing about each other."""
    causes: list[Cause] = []
    ruled_out: list[Cause] = []
    for name in dict.fromkeys(event.evidence.file for event in found):
        of_file = [event for event in found if event.evidence.file == name]
        causes += [cause for rule in RULES for cause in rule(of_file)]
        ruled_out += not_by_retries(of_file)
    kinds = Counter(event.kind for event in found)
    diagnosis = conclude(causes, ruled_out, dict(kinds))
    diagnosis.missing = [text for kind, text in _WANTED if not kinds[kind]]
    return diagnosis


def read_traces(*directories: Path) -> list[TraceEvent]:
    """The events of all nodes of one machine, in the order of its monotonic clock."""
    found = [event for directory in directories for event in events(read_table(directory))]
    return found if len(directories) == 1 else sorted(found, key=lambda event: event.mono_ns)


def diagnose_traces(*directories: Path, frozen_ns: int = FROZEN_NS) -> Diagnosis:
    """One directory per node; of a cluster, those of all nodes tell more than each alone."""
    found = read_traces(*directories)
    diagnosis = diagnose_events(found, directories[0].name, frozen_ns)
    diagnosis.events = dict(Counter(EventKind(event.kind).name for event in found))
    return diagnosis
