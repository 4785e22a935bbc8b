"""Rules over the events of text logs; each shows its lines."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from chronik.audit import logs
from chronik.audit.diagnosis import CERTAIN, LIKELY, POSSIBLE, Cause, Evidence
from chronik.audit.logs import LogEvent

Group = tuple[str, int, str, int]
FROZEN_SAMPLES_MIN = 3
EVIDENCE_MAX = 12


def groups_of(events: Iterable[LogEvent], *kinds: str) -> dict[Group, list[LogEvent]]:
    """Events whose order means something: of one file, excerpt, topic and partition."""
    grouped: dict[Group, list[LogEvent]] = defaultdict(list)
    for event in events:
        if event.kind in kinds:
            place = (event.evidence.file, event.excerpt, event.topic, event.partition)
            grouped[place].append(event)
    return grouped


def lines(events: Iterable[LogEvent]) -> list[Evidence]:
    return list(dict.fromkeys(event.evidence for event in events))[:EVIDENCE_MAX]


def offset_assigned_twice(events: list[LogEvent]) -> Iterator[Cause]:
    """Two batches of one partition whose offset ranges overlap."""
    for (_, _, _, partition), batches in groups_of(events, logs.PRODUCE).items():
        again = [batch for at, batch in enumerate(batches) if _overlaps(batch, batches[:at])]
        if not again:
            continue
        sizes = _sizes(batches)
        different = {base: found for base, found in sizes.items() if len(found) > 1}
        where = f"partition {partition}: "
        if different:
            base, found = next(iter(different.items()))
            named = " and ".join(str(size) for size in sorted(found, reverse=True))
            said = f"batches of different size ({named} records) were both given base offset {base}"
            involved = [batch for batch in batches if batch.numbers["base_offset"] == base]
            yield Cause("offset-assigned-twice", CERTAIN, where + said, lines(involved))
        else:
            highest = max(batch.numbers["last_offset"] + 1 for batch in batches)
            bases = sorted({batch.numbers["base_offset"] for batch in again})
            named = " and ".join(str(base) for base in bases)
            said = f"base offsets {named} were given again after the log had reached {highest}"
            yield Cause("offset-assigned-twice", LIKELY, where + said, lines(batches))


def _overlaps(batch: LogEvent, earlier: list[LogEvent]) -> bool:
    first, last = batch.numbers["base_offset"], batch.numbers["last_offset"]
    return any(
        first <= other.numbers["last_offset"] and other.numbers["base_offset"] <= last
        for other in earlier
    )


def _sizes(batches: list[LogEvent]) -> dict[int, set[int]]:
    sizes: dict[int, set[int]] = defaultdict(set)
    for batch in batches:
        base = batch.numbers["base_offset"]
        sizes[base].add(batch.numbers["last_offset"] - base + 1)
    return sizes


def not_by_retries(events: list[LogEvent]) -> Iterator[Cause]:
    """What a retry, or a watermark overwritten by one, could not have written."""
    for (_, _, _, partition), batches in groups_of(events, logs.PRODUCE).items():
        for base, sizes in _sizes(batches).items():
            if len(sizes) > 1:
                said = f"a retry has the same size: base offset {base} of partition {partition} has"
                named = " and ".join(str(size) for size in sorted(sizes, reverse=True))
                involved = [batch for batch in batches if batch.numbers["base_offset"] == base]
                yield Cause("retry", CERTAIN, f"{said} {named} records", lines(involved))
    for (_, _, _, partition), updates in groups_of(events, logs.UPDATE).items():
        for before, after in pairwise(updates):
            new, old = before.numbers["new"], after.numbers["old"]
            if old < new:
                said = (
                    f"partition {partition}: after new={new} the next line prints old={old}; an "
                    f"overwritten watermark would print old={new}, so {old} was read before {new} "
                    "was stored, or from a second state of the partition"
                )
                yield Cause("watermark-overwrite", CERTAIN, said, lines((before, after)))
                break


def watermark_regression(events: list[LogEvent]) -> Iterator[Cause]:
    kinds = {logs.UPDATE: "new", logs.REPLICATE: "new", logs.WATERMARK: "high_watermark"}
    for kind, field in kinds.items():
        for (_, _, _, partition), updates in groups_of(events, kind).items():
            back = [
                (before, after)
                for before, after in pairwise(updates)
                if after.numbers[field] < before.numbers[field]
            ]
            if back:
                steps = ", ".join(f"{a.numbers[field]} to {b.numbers[field]}" for a, b in back)
                said = f"partition {partition}: the watermark moved back: {steps}"
                shown = [event for step in back for event in step]
                yield Cause("watermark-regression", CERTAIN, said, lines(shown))


def watermark_not_advancing(events: list[LogEvent]) -> Iterator[Cause]:
    """Polls at the end while the end does not move; or events that stop at a low offset."""
    polls = groups_of(events, logs.WATERMARK, logs.NO_DATA)
    for (_, _, _, partition), samples in polls.items():
        ends = {event.numbers["high_watermark"] for event in samples}
        empty = [event for event in samples if event.kind == logs.NO_DATA]
        if len(ends) == 1 and empty and len(samples) >= FROZEN_SAMPLES_MIN:
            said = f"partition {partition}: the watermark stayed at {ends.pop()}{_span(samples)}"
            yield Cause("watermark-not-advancing", LIKELY, said, lines(samples))
    for (_, _, _, partition), updates in groups_of(events, logs.REPLICATE).items():
        top = max(event.numbers["new"] for event in updates)
        reached = next(at for at, event in enumerate(updates) if event.numbers["new"] == top)
        after = updates[reached + 1 :]
        if len(after) >= FROZEN_SAMPLES_MIN:
            said = (
                f"partition {partition}: frozen, {len(after)} events after {top} and none above it"
            )
            yield Cause("watermark-not-advancing", LIKELY, said, lines(updates))


def _span(samples: list[LogEvent]) -> str:
    seconds = [event.second for event in samples if event.second is not None]
    return f" for {max(seconds) - min(seconds):.0f} s" if len(seconds) > 1 else ""


def events_cover_few_partitions(events: list[LogEvent]) -> Iterator[Cause]:
    """Watermark events of some partitions only, while the log knows of others."""
    replicated = [event for event in events if event.kind == logs.REPLICATE]
    covered = {event.partition for event in replicated}
    known = max((event.partition for event in events), default=-1) + 1
    if covered and len(covered) < known:
        names = ", ".join(str(partition) for partition in sorted(covered))
        said = f"watermark events cover partition {names} only, {len(covered)} of {known}"
        others = [event for event in events if event.partition not in covered | {-1}]
        shown = lines([*replicated[:3], *others[:2]])
        yield Cause("watermark-events-partial", LIKELY, said, shown)


def fetch_hanging(events: list[LogEvent]) -> Iterator[Cause]:
    """Data was available and no answer followed."""
    kinds = (logs.DATA, logs.RAW, logs.SUCCESS, logs.FETCH_START)
    for (_, _, _, partition), steps in groups_of(events, *kinds).items():
        begun = [event for event in steps if event.kind == logs.DATA]
        served = [event for event in steps if event.kind == logs.SUCCESS]
        if len(begun) > len(served):
            said = f"partition {partition}: {len(begun)} times data, {len(served)} times an answer"
            yield Cause("fetch-hanging", POSSIBLE, said, lines(steps))


def one_partition_stalled(events: list[LogEvent]) -> Iterator[Cause]:
    served = {event.partition for event in events if event.kind == logs.SUCCESS}
    empty = [event for event in events if event.kind == logs.NO_DATA]
    stalled = {event.partition for event in empty} - served
    if served and stalled:
        names = ", ".join(str(partition) for partition in sorted(stalled))
        said = f"partition {names} got nothing while others were served"
        shown = [event for event in empty if event.partition in stalled]
        yield Cause("one-partition-stalled", POSSIBLE, said, lines(shown))


def leader_rejections(events: list[LogEvent]) -> Iterator[Cause]:
    """Requests at a node that does not lead the partition. They delay; alone they lose nothing."""
    because = "a rejected request was not acknowledged, so alone this loses nothing that was"
    for event in events:
        if event.kind == logs.REJECTION_COUNT:
            rejected, requests = event.numbers["rejected"], event.numbers["requests"]
            share = f"{rejected} of {requests} requests ({rejected / requests:.0%})"
            said = f"{share} were rejected by nodes that do not lead the partition; {because}"
            yield Cause("leader-rejections", LIKELY, said, lines([event]))
    rejected_lines = [event for event in events if event.kind == logs.REJECTED]
    if rejected_lines:
        taken = sum(event.kind == logs.PRODUCE for event in events)
        nodes = Counter(_node(event) for event in rejected_lines)
        per_node = ", ".join(f"{count} at {node}" for node, count in nodes.most_common())
        total = len(rejected_lines) + taken
        said = f"{len(rejected_lines)} of {total} requests were rejected ({per_node}); {because}"
        yield Cause("leader-rejections", LIKELY, said, lines(rejected_lines))


def _node(event: LogEvent) -> str:
    prefix = event.evidence.text.split(" ", 1)[0]
    return prefix.rstrip(":") if ".log" in prefix else event.evidence.file


RULES = (
    offset_assigned_twice,
    watermark_regression,
    watermark_not_advancing,
    events_cover_few_partitions,
    fetch_hanging,
    one_partition_stalled,
    leader_rejections,
)
