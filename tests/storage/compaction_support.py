"""Keyed batches and a driver for the compaction tests."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.storage.support import (
    CODECS,
    NOW,
    append,
    new_disk,
    open_log,
    raw_batch,
    read_all,
    record,
    run,
)

from chronik.sim.disk import SimDisk
from chronik.storage.compaction import Compaction
from chronik.storage.compaction_plan import CompactionRules, Plan, plan
from chronik.storage.log import Log
from chronik.storage.segment import LogConfig
from chronik.wire.record_iter import Record, iter_records
from chronik.wire.records import batch_crc, scan

HOUR_MS = 3_600_000
RULES = CompactionRules(dirty_ratio_min=0.0, delete_retention_ms=HOUR_MS)
ONE_BATCH_PER_SEGMENT = LogConfig(segment_bytes=1, index_interval_bytes=150)
LARGE = LogConfig(segment_bytes=100_000, index_interval_bytes=150)
Pair = tuple[bytes | None, bytes | None]


class Sent(NamedTuple):
    """What a producer says of itself."""

    producer: tuple[int, int, int] = (-1, -1, -1)
    codec: int = 0
    attributes: int = 0
    timestamp: int = NOW


PLAIN = Sent()


def keyed(base_offset: int, pairs: Sequence[Pair], sent: Sent = PLAIN) -> bytes:
    """One batch; record i is i milliseconds younger than the first and has a header."""
    records = b"".join(
        record(i, i, value, key, [("n", str(base_offset + i).encode())])
        for i, (key, value) in enumerate(pairs)
    )
    return raw_batch(
        base_offset,
        CODECS[sent.codec](records),
        len(pairs),
        times=(sent.timestamp, sent.timestamp + len(pairs) - 1),
        attributes=sent.attributes | sent.codec,
        producer=sent.producer,
    )


def put(log: Log, *pairs: Pair, sent: Sent = PLAIN) -> bytes:
    """Appends one batch."""
    made = keyed(log.end_offset, pairs, sent)
    append(log, made)
    return made


def roll(log: Log) -> None:
    """Begins a new active segment, with a record that no test looks at."""
    config, log.config = log.config, ONE_BATCH_PER_SEGMENT
    put(log, (b"~", b"active"))
    log.config = config


def planned(
    log: Log, rules: CompactionRules = RULES, now_ms: int = NOW, high_watermark: int | None = None
) -> Plan | None:
    end = log.end_offset if high_watermark is None else high_watermark
    return plan(log, rules, end, now_ms)


def clean(
    log: Log,
    rules: CompactionRules = RULES,
    now_ms: int = NOW,
    *,
    producers: Mapping[int, int] | None = None,
    map_bytes_max: int = 1 << 20,
) -> Compaction | None:
    """One whole cleaning; None where nothing was dirty."""
    work = planned(log, rules, now_ms)
    if work is None:
        return None
    compaction = Compaction(work, now_ms, producers or {}, map_bytes_max=map_bytes_max)
    compaction.build_map()
    groups = compaction.groups()
    for group in groups:
        run(log, log.swap(compaction.rewrite(group, last=group is groups[-1])))
    compaction.close()
    return compaction


def batches_of(log: Log) -> list[bytes]:
    """Every batch, its CRC checked."""
    data = read_all(log)
    found = [data[at : at + header.size] for at, header in scan(data)]
    assert b"".join(found) == data
    assert all(batch_crc(one) == int.from_bytes(one[17:21], "big") for one in found)
    return found


def records_of(log: Log) -> list[Record]:
    return [one for batch in batches_of(log) for one in iter_records(batch)]


def pairs_of(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value), without those that `roll` wrote."""
    return [(one.offset, one.key, one.value) for one in records_of(log) if one.key != b"~"]


def new_log(config: LogConfig = LARGE) -> tuple[SimDisk, Log]:
    disk = new_disk()
    return disk, open_log(disk, config)[0]


def ready(log: Log, *, map_bytes_max: int = 1 << 20) -> Compaction:
    work = planned(log)
    assert work is not None
    compaction = Compaction(work, NOW, map_bytes_max=map_bytes_max)
    compaction.build_map()
    return compaction
