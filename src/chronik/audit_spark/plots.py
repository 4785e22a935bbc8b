"""What a report draws, from aggregated tables: the shape of `audit.plots`, at most 121 points each.

Spark puts each event into the slot of the axis at which it becomes known; the driver is given one
number per line and slot, never an event.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from chronik.audit.measures import POINTS_MAX
from chronik.audit.plots import NODE_CHARTS_MAX, PARTITIONS_MAX, TIMELINE_MAX, timeline
from chronik.audit_spark.happenings import ROWS_MAX, Happenings
from chronik.audit_spark.history import KEY
from chronik.model.errors import ErrorCode
from chronik.trace.events import EventKind, TraceEvent

_LOG_ENDS = (EventKind.APPENDED, EventKind.FOLLOWER_APPENDED, EventKind.TRUNCATED)
_FRAMES = (EventKind.STARTED, EventKind.STOPPED)
_DRAWN = (*_LOG_ENDS, *_FRAMES, EventKind.WATERMARK, EventKind.REJECTED)


class Traces(NamedTuple):
    """The nodes' events about the topics of the ledgers, and how many directories they are of."""

    events: DataFrame
    directories: int

    @property
    def order(self) -> list[Column]:
        """As `audit.diagnose.read_traces` orders them."""
        return [f.col("line")] if self.directories == 1 else [f.col("mono_ns"), f.col("line")]


class Axis(NamedTuple):
    """The moments of a chart, in seconds and in milliseconds."""

    seconds: list[float]
    moments: list[int]

    def slot(self, moment: Column) -> Column:
        """The first point of the axis that is not before the moment."""
        low, high = self.moments[0], self.moments[-1]
        points = f.array(*map(f.lit, self.moments))
        if high - low <= 2 * POINTS_MAX:  # several points are one millisecond
            return f.size(f.filter(points, lambda point: point < moment))
        guess = f.ceil((moment - low) * POINTS_MAX / (high - low)).cast("int")
        near = f.least(f.greatest(guess, f.lit(0)), f.lit(POINTS_MAX))
        # The points are rounded: the guess can be one off.
        earlier = (near > 0) & (moment <= f.get(points, near - 1))
        later = moment > f.get(points, near)
        return f.when(later, near + 1).when(earlier, near - 1).otherwise(near)


def axis_of(low_ms: int, high_ms: int) -> Axis:
    """As `audit.plots.resampled` divides the time."""
    low, high = min(0.0, low_ms / 1_000), high_ms / 1_000
    seconds = [round(low + (high - low) * n / POINTS_MAX, 3) for n in range(POINTS_MAX)] + [high]
    return Axis(seconds, [round(at * 1_000) for at in seconds])


def plot_data(
    sends: DataFrame, step: int, stalls: DataFrame, around: Happenings, traces: Traces | None
) -> dict[str, Any]:
    """JSON-ready; what there is no evidence for is empty."""
    happened = timeline(around.history, around.clock, _turns(traces) if traces else [])
    happened = sorted([*happened, *_stalled(stalls, around)], key=lambda entry: entry["s"])
    return {
        "progress": progress(sends, step, around),
        "timeline": happened[:TIMELINE_MAX],
        "nodes": node_levels(traces, around) if traces else {},
        "rejections": rejections(traces.events) if traces else {},
    }


def _milliseconds(at_ns: Column, around: Happenings) -> Column:
    """Since the start of the run."""
    return f.round((at_ns - around.clock.start_ns) / 1_000_000).cast("bigint")


def _name() -> Column:
    return f.concat_ws("-", "topic", f.col("partition").cast("string"))


# -- values read


def progress(sends: DataFrame, step: int, around: Happenings) -> dict[str, Any]:
    """Values read in total, per partition."""
    read = sends.where("read_ns >= 0 AND first IS NOT NULL").select(
        f.col("first.topic").alias("topic"),
        f.col("first.partition").alias("partition"),
        _milliseconds(f.col("read_ns"), around).alias("moment"),
    )
    spans = read.groupBy(*KEY).agg(f.min("moment").alias("low"), f.max("moment").alias("high"))
    shown = spans.orderBy(*KEY).limit(PARTITIONS_MAX).collect()
    if not shown:
        return {}
    names = [f"{one['topic']}-{one['partition']}" for one in shown]
    axis = axis_of(min(one["low"] for one in shown), max(one["high"] for one in shown))
    placed = read.select(_name().alias("name"), axis.slot(f.col("moment")).alias("slot"))
    counted = placed.where(f.col("name").isin(names)).groupBy("name", "slot").count()
    counts = {(one["name"], one["slot"]): one["count"] * step for one in counted.collect()}
    points = range(len(axis.seconds))
    series = {
        name: list(accumulate(counts.get((name, slot), 0) for slot in points)) for name in names
    }
    return {"seconds": axis.seconds, "series": series}


# -- what happened when


def _stalled(stalls: DataFrame, around: Happenings) -> list[dict[str, Any]]:
    """One entry per stall: `begin_ns`, `end_ns`, `statement`."""
    first = stalls.orderBy("begin_ns").limit(TIMELINE_MAX).collect()
    return [
        {
            "kind": "stall",
            "s": around.clock.seconds(one["begin_ns"]),
            "end_s": around.clock.seconds(one["end_ns"]),
            "what": one["statement"],
        }
        for one in first
    ]


def _turns(traces: Traces) -> list[TraceEvent]:
    """First appends of a leader, starts and stops: all that a timeline takes from traces."""
    order = Window.partitionBy(*KEY).orderBy(*traces.order)
    appended = traces.events.where(f.col("kind") == int(EventKind.APPENDED))
    before = f.coalesce(f.lag("node").over(order), f.lit(-1))
    turned = appended.withColumn("before", before).where("before != node").drop("before")
    framing = traces.events.where(f.col("kind").isin(*map(int, _FRAMES)))
    both = turned.unionByName(framing).orderBy(*traces.order)
    rows = both.select(*TraceEvent._fields).limit(ROWS_MAX).collect()
    return [TraceEvent(*one) for one in rows]


# -- nodes


def node_levels(traces: Traces, around: Happenings) -> dict[str, Any]:
    """Per partition: the high watermark and the log end of each node."""
    levels = _levels(traces, around)
    spans = levels.groupBy("name").agg(f.min("moment").alias("low"), f.max("moment").alias("high"))
    shown = spans.orderBy("name").limit(NODE_CHARTS_MAX).collect()
    axes = {one["name"]: axis_of(one["low"], one["high"]) for one in shown}
    if not axes:
        return {}
    slot = f.lit(None).cast("int")
    for name, axis in axes.items():
        slot = f.when(f.col("name") == name, axis.slot(f.col("moment"))).otherwise(slot)
    placed = levels.withColumn("slot", slot).where("slot IS NOT NULL")
    last = placed.groupBy("name", "line_name", "slot").agg(
        f.max_by("level", f.struct("moment", "at")).alias("level")
    )
    known: dict[str, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for one in last.collect():
        known[one["name"]][one["line_name"]][one["slot"]] = one["level"]
    return {name: _filled(axis, known[name]) for name, axis in axes.items()}


def _levels(traces: Traces, around: Happenings) -> DataFrame:
    """One row per level that a node told of a partition."""
    events = traces.events
    is_watermark = f.col("kind") == int(EventKind.WATERMARK)
    is_end = f.col("kind").isin(*map(int, _LOG_ENDS))
    level = f.when(is_watermark, f.col("high_watermark")).when(is_end, f.col("log_end"))
    word = f.when(is_watermark, " watermark").otherwise(" log end")
    zero_ns = around.clock.monotonic_ns(0, 0)
    known = around.clock.monotonic_ns(1, 0) != zero_ns
    at_ns = f.col("time_ns") + zero_ns if known else f.col("mono_ns")
    told = events.where("topic IS NOT NULL").select(
        _name().alias("name"),
        f.concat(f.lit("node "), f.col("node"), word).alias("line_name"),
        _milliseconds(at_ns, around).alias("moment"),
        f.struct(*traces.order).alias("at"),
        level.alias("level"),
    )
    return told.where("level IS NOT NULL")


def _filled(axis: Axis, known: dict[str, dict[int, int]]) -> dict[str, Any]:
    """At each moment the last level that was known then."""
    series = {}
    for name in sorted(known):
        levels, level = known[name], 0
        series[name] = [level := levels.get(slot, level) for slot in range(len(axis.seconds))]
    return {"seconds": axis.seconds, "series": series}


def rejections(events: DataFrame) -> dict[str, dict[str, int]]:
    """Per node: how often it refused with which error."""
    refused = events.where(f.col("kind") == int(EventKind.REJECTED))
    codes = refused.groupBy("node", f.coalesce("error_code", f.lit(0)).alias("code")).count()
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for one in codes.collect():
        known = one["code"] in ErrorCode.__members__.values()
        name = ErrorCode(one["code"]).name if known else str(one["code"])
        found[f"node {one['node']}"][name] += one["count"]
    return {node: dict(counter.most_common()) for node, counter in sorted(found.items())}


def own_traces(events: DataFrame, topics: Sequence[str], directories: int) -> Traces:
    """Events of these topics, and those of no topic, as far as they are drawn."""
    own = f.col("topic").isNull() | f.col("topic").isin(*topics)
    drawn = f.col("kind").isin(*map(int, _DRAWN))
    return Traces(events.where(own & drawn).localCheckpoint(), directories)
