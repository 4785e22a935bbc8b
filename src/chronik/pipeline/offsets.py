"""Which offsets to read: the options of Spark's Kafka source, resolved against a cluster."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from chronik.pipeline.client import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Cluster,
    TopicPartition,
)
from chronik.pipeline.decode import COLUMNS
from chronik.pipeline.fetch import OffsetRange

Offsets = dict[TopicPartition, int]
SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_NAMED = {"earliest": EARLIEST, "latest": LATEST}


class BadOption(ValueError):  # noqa: N818
    """An option that is missing, contradicts another, or cannot be read."""


@dataclass(frozen=True)
class SourceOptions:
    """The options of one read, validated; nothing is opened yet."""

    bootstrap: str
    subscription: tuple[str, str]
    starting: tuple[str, str] | None
    ending: tuple[str, str] | None
    min_partitions: int
    max_offsets_per_trigger: int | None
    fail_on_data_loss: bool
    isolation: int
    columns: tuple[str, ...]
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 15 * 60.0
    max_records_per_partition: int | None = None
    late_start: str = "error"
    """What to do where no record is as late as the starting timestamp: error or latest."""
    segments: tuple[str, ...] = ()
    """Data directories of nodes, to be read without the broker."""


def read_options(options: Mapping[str, str]) -> SourceOptions:
    """The options by Kafka's names, in any case."""
    given = {name.lower(): value for name, value in options.items()}
    bootstrap = given.get("kafka.bootstrap.servers") or given.get("bootstrap")
    if not bootstrap:
        raise BadOption("option 'kafka.bootstrap.servers' says where the cluster is")
    chosen = [(name, given[name.lower()]) for name in SUBSCRIPTIONS if name.lower() in given]
    if len(chosen) != 1:
        raise BadOption(f"exactly one of {', '.join(SUBSCRIPTIONS)} says what to read")
    _refuse_security(given)
    return SourceOptions(
        bootstrap,
        chosen[0],
        _bound(given, "starting"),
        _bound(given, "ending"),
        _number(given, "minpartitions") or 0,
        _number(given, "maxoffsetspertrigger"),
        _boolean(given, "failondataloss", default=True),
        _isolation(given.get("kafka.isolation.level", "read_uncommitted")),
        _columns(given),
        _number(given, "minoffsetspertrigger"),
        _seconds(given.get("maxtriggerdelay", "15m")),
        _number(given, "maxrecordsperpartition"),
        _strategy(given.get("startingoffsetsbytimestampstrategy", "error")),
        tuple(one.strip() for one in given.get("segments", "").split(",") if one.strip()),
    )


def _refuse_security(given: Mapping[str, str]) -> None:
    """Other options of the consumer only tune it; to leave these out would be a lie."""
    protocol = given.get("kafka.security.protocol", "PLAINTEXT")
    if protocol != "PLAINTEXT":
        raise BadOption(f"kafka.security.protocol {protocol}: this source speaks PLAINTEXT only")


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise BadOption(f"option '{name}' is a positive number, not '{text}'")
    return int(text)


def _seconds(text: str) -> float:
    """A duration as Spark writes it: 15m, 30s, 500ms."""
    found = re.fullmatch(r"\s*(\d+)\s*(ms|s|m|min|h|d)?\s*", text.lower())
    if found is None:
        raise BadOption(f"'{text}' is no duration; write 500ms, 30s, 15m or 1h")
    return int(found[1]) * _UNITS_S[found[2] or "ms"]


def _strategy(text: str) -> str:
    if text.lower() not in {"error", "latest"}:
        raise BadOption(f"startingOffsetsByTimestampStrategy is error or latest, not '{text}'")
    return text.lower()


def _bound(given: Mapping[str, str], which: str) -> tuple[str, str] | None:
    # Where several are given the one for all partitions counts first, as in Spark.
    for name in ("timestamp", "offsetsbytimestamp", "offsets"):
        if which + name in given:
            return name, given[which + name]
    return None


def _boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise BadOption(f"option '{name}' is true or false, not '{text}'")
    return text == "true"


def _isolation(level: str) -> int:
    levels = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
    if level not in levels:
        raise BadOption(f"isolation level is one of {', '.join(levels)}, not '{level}'")
    return levels[level]


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    known = COLUMNS if _boolean(given, "includeheaders", default=False) else COLUMNS[:-1]
    if "columns" not in given:
        return known
    return known_columns(name.strip() for name in given["columns"].split(","))


def known_columns(names: Iterable[str]) -> tuple[str, ...]:
    """The names, which must be some of the source's."""
    wanted = tuple(names)
    unknown = [name for name in wanted if name not in COLUMNS]
    if unknown:
        raise BadOption(f"no column {', '.join(unknown)}; there are {', '.join(COLUMNS)}")
    return wanted


# -- against a cluster


def subscribed(cluster: Cluster, options: SourceOptions) -> list[TopicPartition]:
    """Every partition that the options name."""
    kind, text = options.subscription
    if kind == "assign":
        chosen = _json(text, "assign")
        return sorted((topic, int(one)) for topic, parts in chosen.items() for one in parts)
    if kind == "subscribePattern":
        pattern = re.compile(text)
        topics = [name for name in cluster.topics() if pattern.fullmatch(name)]
    else:
        topics = [name.strip() for name in text.split(",")]
    return cluster.partitions(topics) if topics else []


def starting(cluster: Cluster, options: SourceOptions, default: str) -> Offsets:
    """Where to begin; partitions that a JSON leaves out begin at their earliest offset."""
    bound = options.starting or ("offsets", default)
    return _resolve(cluster, options, bound, "earliest", options.late_start)


def ending(cluster: Cluster, options: SourceOptions) -> Offsets:
    """Where to end, not included."""
    bound = options.ending or ("offsets", "latest")
    return _resolve(cluster, options, bound, "latest", "latest")


def _resolve(
    cluster: Cluster, options: SourceOptions, bound: tuple[str, str], default: str, late: str
) -> Offsets:
    kind, text = bound
    partitions = subscribed(cluster, options)
    if kind == "timestamp":
        return _by_time(cluster, options, dict.fromkeys(partitions, int(text)), late)
    if text in _NAMED:
        return cluster.offsets(dict.fromkeys(partitions, _NAMED[text]), options.isolation)
    given = {
        (topic, int(one)): int(offset)
        for topic, parts in _json(text, kind).items()
        for one, offset in parts.items()
    }
    if kind == "offsetsbytimestamp":
        return _by_time(cluster, options, given, late)
    missing = {one: _NAMED[default] for one in partitions if one not in given}
    named = {one: offset for one, offset in given.items() if offset < 0}
    return given | cluster.offsets(missing | named, options.isolation)


def _by_time(cluster: Cluster, options: SourceOptions, times: Offsets, late: str) -> Offsets:
    found = cluster.offsets(times, options.isolation)
    after = dict.fromkeys((one for one, offset in found.items() if offset < 0), LATEST)
    if after and late == "error":
        (topic, partition), _ = next(iter(after.items()))
        raise BadOption(
            f"no record of {topic}-{partition} is as late as the starting timestamp; with "
            "startingOffsetsByTimestampStrategy=latest the read begins at its end"
        )
    return found | (cluster.offsets(after, options.isolation) if after else {})


def _json(text: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadOption(f"option '{name}' is neither a name nor JSON: {text}") from error
    if not isinstance(value, dict):
        raise BadOption(f"option '{name}' is a JSON object of topics, not {text}")
    return value


def split(
    ranges: list[OffsetRange], pieces_min: int, records_max: int | None = None
) -> list[OffsetRange]:
    """The ranges without empty ones, cut so that none is over `records_max`.

    And so that there are at least `pieces_min`, if there can.
    """
    ranges = [one for one in ranges if one.end > one.start]
    if records_max:
        ranges = [
            piece
            for one in ranges
            for piece in _pieces(one, -(-(one.end - one.start) // records_max))
        ]
    total = sum(one.end - one.start for one in ranges)
    if not total or len(ranges) >= pieces_min:
        return ranges
    found: list[OffsetRange] = []
    for one in ranges:
        size = one.end - one.start
        found += _pieces(one, max(1, min(size, round(pieces_min * size / total))))
    return found


def _pieces(one: OffsetRange, count: int) -> list[OffsetRange]:
    size = one.end - one.start
    edges = [one.start + size * number // count for number in range(count + 1)]
    return [OffsetRange(one.topic, one.partition, start, end) for start, end in pairwise(edges)]


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """{"topic": {"0": 17}}: the form of Spark's Kafka source, in options and checkpoints."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(value: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The inverse of `to_json`."""
    return {(t, int(p)): int(offset) for t, parts in value.items() for p, offset in parts.items()}
