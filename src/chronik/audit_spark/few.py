"""The verdict on rows that fit in memory: by the rules of `audit.verdict` themselves.

The rows of the blocks that are not clean are a history of their own (`screen`). What was left out
is added to its counts; latencies and curves come from the sample of all.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from chronik.audit.anomaly import Findings, Policy, Verdict
from chronik.audit.history import History
from chronik.audit.location import Clock, losses_in
from chronik.audit.loss import LOST_NAMES
from chronik.audit.measures import Counts, find_imbalance, measure, named, partitions, times_of
from chronik.audit.plots import Reads, first_reads, progress, timeline
from chronik.audit.rows import NONE, Kind, Outcome, Partition, Row
from chronik.audit.verdict import find_anomalies, verdict_of
from chronik.audit_spark.context import Clean, clean_of
from chronik.audit_spark.reduce import LeftOut, Reduced
from chronik.audit_spark.sample import Sample, sample_of


def judged_in_memory(chosen: Reduced, policy: Policy, *, plots: bool) -> Verdict:
    """Equal to `audit.verdict.judge` on all rows of the ledgers."""
    clean = clean_of(chosen.left_out, chosen.rows.in_memory) if chosen.left_out else {}
    history = history_of(chosen, clean)
    sample, counted, findings = (
        _sample(history, chosen.sample),
        _counted(history, clean),
        Findings(),
    )
    find_anomalies(history, findings, policy)
    find_imbalance(history, findings, policy, counted)
    measures = measure(history, sample.times, chosen.step) | {"partitions": named(counted)}
    _add_left_out(measures, clean)
    verdict = verdict_of(findings, measures)
    clock = _clock(history, chosen.left_out)
    if any(verdict.count(name) for name in LOST_NAMES):
        measures["losses"] = losses_in(history, clock)
    if chosen.step > 1:
        measures["sampled"] = chosen.step
    if plots:
        measures["plots"] = _plots(history, sample.reads, clock, chosen.step)
    return verdict


def history_of(chosen: Reduced, clean: Iterable[Partition]) -> History:
    """Of the rows; a key whose blocks are all clean is known, though nothing in it is judged."""
    known = (Row(Kind.LOG, topic=key.topic, partition=key.partition) for key in clean)
    return History([*chosen.rows.in_memory, *known])


def _counted(history: History, clean: Mapping[Partition, Clean]) -> dict[Partition, Counts]:
    """Per key: what was committed, read and missed in all its blocks."""
    found = partitions(history)
    for key, left in clean.items():
        log = history.logs[key]
        none = {"sent": 0, "read": 0, "missed": 0, "offset_min": NONE, "offset_max": NONE}
        end = NONE if log.end is None else log.end
        one = found.setdefault(key, none | {"log_start": log.start, "log_end": end})
        low = min(left.offset_min, one["offset_min"] if one["read"] else left.offset_min)
        read, high = one["read"] + left.values, max(left.offset_max, one["offset_max"])
        bounds = {"offset_min": low, "offset_max": high, "gaps": high - low + 1 - read}
        one |= {"sent": one["sent"] + left.values, "read": read} | bounds
    return dict(sorted(found.items()))


def _add_left_out(measures: dict[str, Any], clean: Mapping[Partition, Clean]) -> None:
    values = sum(one.values for one in clean.values())
    if values:
        sends = measures["sends"]
        sends[Outcome.OK] = sends.get(Outcome.OK, 0) + values
    measures["values_read"] += values
    measures["records"] += sum(one.records for one in clean.values())


def _clock(history: History, left_out: LeftOut | None) -> Clock:
    """The run starts with the first send, whether it is judged or not."""
    if left_out is None:
        return Clock(history)
    blocks = left_out.blocks
    begun = blocks.column("begin_ns_min")[blocks.sends]
    first = [Row(Kind.SEND, begin_ns=int(begun[begun >= 0].min()))] if (begun >= 0).any() else []
    return Clock(History([*history.by_kind[Kind.CLIENT], *history.by_kind[Kind.SEND], *first]))


def _sample(history: History, events: pa.Table | None) -> Sample:
    """Everything, where no row was left out."""
    if events is None:
        return Sample(times_of(history), first_reads(history))
    return sample_of(events)


def _plots(history: History, reads: Reads, clock: Clock, step: int) -> dict[str, Any]:
    return {
        "progress": progress(reads, clock, step),
        "timeline": timeline(history, clock, []),
        "nodes": {},
        "rejections": {},
    }
