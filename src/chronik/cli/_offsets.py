"""Offsets of partitions: where they begin and end, and which one a moment in time means."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from chronik.cli._client import (
    ANSWER_SECONDS_MAX,
    ATTEMPTS_MAX,
    admin_module,
    attempts,
    results,
)

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_RELATIVE = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d)\Z")
_OFFSET = re.compile(r"-?\d+\Z")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Position:
    """Where to begin or to end, the same for every partition."""

    kind: Literal["earliest", "latest", "offset", "last", "time"]
    number: int = 0
    """The offset, how many records before the end, or milliseconds since 1970."""


def parse_position(text: str, now_ms: int) -> Position:
    """earliest, latest, an offset, -N (the last N), an ISO 8601 time, or -10m (ten minutes ago)."""
    if text == "earliest":
        return Position("earliest")
    if text == "latest":
        return Position("latest")
    if _OFFSET.match(text):
        return Position("last" if text.startswith("-") else "offset", abs(int(text)))
    if relative := _RELATIVE.match(text):
        ago_ms = float(relative[1]) * _UNIT_MS[relative[2]]
        return Position("time", max(0, int(now_ms - ago_ms)))
    return Position("time", _moment_ms(text))


def _moment_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is none of: earliest, latest, an offset (42), the last records of each "
            "partition (-10), a time (2026-07-31T12:00, 2026-07-31T10:00Z) or a time ago "
            "(-30s, -10m, -2h, -1d)"
        ) from error
    if moment.year < 1970:
        return 0  # before all records, and year 1 is out of range in some zones
    # astimezone takes a time without a zone for one of the clock on the user's wall.
    return max(0, int(moment.astimezone().timestamp() * 1000))


@dataclass(frozen=True, slots=True)
class Range:
    """What a partition holds: offsets from start to end, the end not included."""

    start: int
    end: int


def ranges(admin: "AdminClient", partitions: Iterable[Partition]) -> dict[Partition, Range]:
    """Start and end offset of each partition."""
    spec = admin_module().OffsetSpec
    wanted = list(partitions)
    starts = list_offsets(admin, wanted, spec.earliest())
    ends = list_offsets(admin, wanted, spec.latest())
    return {key: Range(starts[key], ends[key]) for key in wanted}


def list_offsets(
    admin: "AdminClient", partitions: Iterable[Partition], spec: Any
) -> dict[Partition, int]:
    """The offset that `spec` means in each partition; -1 where no record fits."""
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    asked = {TopicPartition(topic, number): spec for topic, number in partitions}
    found: dict[Partition, int] = {}
    if not asked:
        return found
    for attempt in attempts():
        answers = results(admin.list_offsets(asked, request_timeout=ANSWER_SECONDS_MAX))
        for key, answer in answers.items():
            if not isinstance(answer, KafkaError):
                found[key.topic, key.partition] = answer.offset
            elif answer.code() not in _transient() or attempt == ATTEMPTS_MAX - 1:
                raise KafkaException(answer)
        asked = {key: spec for key in asked if (key.topic, key.partition) not in found}
        if not asked:
            break
    return found


def _transient() -> tuple[int, ...]:
    """Errors of a leader that has just been chosen, or of a client that does not know it yet."""
    from confluent_kafka import KafkaError

    return (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)


def resolve(
    admin: "AdminClient", position: Position, held: dict[Partition, Range]
) -> dict[Partition, int]:
    """The offset that `position` means in each partition, never outside of what it holds."""
    if position.kind == "time":
        spec = admin_module().OffsetSpec.for_timestamp(position.number)
        found = list_offsets(admin, held, spec)
        wanted = {key: found[key] if found[key] >= 0 else held[key].end for key in held}
    else:
        wanted = {key: _wanted(position, has) for key, has in held.items()}
    return {key: min(max(wanted[key], has.start), has.end) for key, has in held.items()}


def _wanted(position: Position, has: Range) -> int:
    match position.kind:
        case "earliest":
            return has.start
        case "latest":
            return has.end
        case "last":
            return has.end - position.number
        case _:
            return position.number
