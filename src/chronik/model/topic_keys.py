"""The keys of a topic's configuration: Apache Kafka 4.3's, with its defaults and ranges, and ours.

One entry is one key; `fixed_because` marks those that are accepted at their default only.
"""

import re
from collections.abc import Mapping
from typing import Final

from chronik.model.configs import LONG_MAX, ConfigKey, ConfigType, ConfigValue, Synonym
from chronik.model.limits import BATCH_BYTES_MAX

_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _DOUBLE, _LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST

HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000
_NO_TIER: Final = "segments are not moved to remote storage"
_NO_THROTTLE: Final = "replication is not throttled per replica"

_THROTTLED: Final = re.compile(r"[0-9]+:[0-9]+\Z")


def _throttled(value: ConfigValue) -> str | None:
    items = value if isinstance(value, tuple) else ()
    if items == ("*",) or all(_THROTTLED.match(item) for item in items):
        return None
    return (
        "must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


def _broker(name: str) -> tuple[Synonym, ...]:
    return (Synonym(name),)


_KEYS: Final = (
    ConfigKey(
        "cleanup.policy",
        _LIST,
        ("delete",),
        "What happens to old segments: 'delete' drops them by age and size, 'compact' keeps the "
        "last record of each key, both do both, and the empty list keeps everything.",
        choices=("compact", "delete"),
        synonyms=_broker("log.cleanup.policy"),
    ),
    ConfigKey(
        "compression.type",
        _STRING,
        "producer",
        "The codec of stored batches. 'producer' keeps what the producer chose, byte for byte; "
        "any other value has the leader compress what comes in another codec.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=_broker("compression.type"),
    ),
    ConfigKey(
        "compression.gzip.level",
        _INT,
        -1,
        "The level where compression.type is gzip.",
        low=1,
        high=9,
        also=-1,
        synonyms=_broker("compression.gzip.level"),
    ),
    ConfigKey(
        "compression.lz4.level",
        _INT,
        9,
        "The level where compression.type is lz4.",
        low=1,
        high=17,
        synonyms=_broker("compression.lz4.level"),
    ),
    ConfigKey(
        "compression.zstd.level",
        _INT,
        3,
        "The level where compression.type is zstd.",
        low=-131072,
        high=22,
        synonyms=_broker("compression.zstd.level"),
    ),
    ConfigKey(
        "delete.retention.ms",
        _LONG,
        24 * HOUR_MS,
        "How long a compacted topic keeps the mark of a deleted key, so that slow readers see it.",
        low=0,
        synonyms=_broker("log.cleaner.delete.retention.ms"),
    ),
    ConfigKey(
        "file.delete.delay.ms",
        _LONG,
        MINUTE_MS,
        "How long a segment that is no longer part of the log stays on disk at most. Here it "
        "leaves at once, and whoever reads it keeps it.",
        low=0,
        synonyms=_broker("log.segment.delete.delay.ms"),
    ),
    ConfigKey(
        "flush.messages",
        _LONG,
        LONG_MAX,
        "Records after which the log is synced. Durability 'fsync' syncs before every "
        "acknowledgement, so it always does at least this; with durability 'os' it is refused.",
        low=1,
        synonyms=_broker("log.flush.interval.messages"),
    ),
    ConfigKey(
        "flush.ms",
        _LONG,
        LONG_MAX,
        "Milliseconds after which the log is synced. Durability 'fsync' syncs before every "
        "acknowledgement, so it always does at least this; with durability 'os' it is refused.",
        low=0,
        synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    ),
    ConfigKey(
        "follower.replication.throttled.replicas",
        _LIST,
        (),
        "Replicas whose fetching is limited while data is moved.",
        check=_throttled,
        fixed_because=_NO_THROTTLE,
    ),
    ConfigKey(
        "index.interval.bytes",
        _INT,
        4096,
        "Bytes of log per entry of the offset index: smaller finds faster and takes more memory.",
        low=0,
        synonyms=_broker("log.index.interval.bytes"),
    ),
    ConfigKey(
        "leader.replication.throttled.replicas",
        _LIST,
        (),
        "Replicas whose serving of followers is limited while data is moved.",
        check=_throttled,
        fixed_because=_NO_THROTTLE,
    ),
    ConfigKey(
        "local.retention.bytes",
        _LONG,
        -2,
        "Bytes kept on local disk where older segments are in remote storage.",
        low=-2,
        synonyms=_broker("log.local.retention.bytes"),
        fixed_because=_NO_TIER,
    ),
    ConfigKey(
        "local.retention.ms",
        _LONG,
        -2,
        "Time kept on local disk where older segments are in remote storage.",
        low=-2,
        synonyms=_broker("log.local.retention.ms"),
        fixed_because=_NO_TIER,
    ),
    ConfigKey(
        "max.compaction.lag.ms",
        _LONG,
        LONG_MAX,
        "The longest a record may stay out of reach of compaction.",
        low=1,
        synonyms=_broker("log.cleaner.max.compaction.lag.ms"),
    ),
    ConfigKey(
        "max.message.bytes",
        _INT,
        BATCH_BYTES_MAX,
        "The largest record batch accepted, after compression.",
        low=0,
        synonyms=_broker("message.max.bytes"),
    ),
    ConfigKey(
        "message.timestamp.after.max.ms",
        _LONG,
        HOUR_MS,
        "How far in the future a record's own timestamp may be; not used with LogAppendTime.",
        low=0,
        synonyms=_broker("log.message.timestamp.after.max.ms"),
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        _LONG,
        LONG_MAX,
        "How far in the past a record's own timestamp may be; not used with LogAppendTime.",
        low=0,
        synonyms=_broker("log.message.timestamp.before.max.ms"),
    ),
    ConfigKey(
        "message.timestamp.type",
        _STRING,
        "CreateTime",
        "Whose clock stamps a record: the producer's (CreateTime) or the leader's (LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"),
        synonyms=_broker("log.message.timestamp.type"),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        _DOUBLE,
        0.5,
        "Compaction starts when this part of the log has not been compacted yet.",
        low=0,
        high=1,
        synonyms=_broker("log.cleaner.min.cleanable.ratio"),
    ),
    ConfigKey(
        "min.compaction.lag.ms",
        _LONG,
        0,
        "The least time a record stays uncompacted.",
        low=0,
        synonyms=_broker("log.cleaner.min.compaction.lag.ms"),
    ),
    ConfigKey(
        "min.insync.replicas",
        _INT,
        1,
        "In-sync replicas without which a produce with acks=all is refused.",
        low=1,
        synonyms=_broker("min.insync.replicas"),
    ),
    ConfigKey(
        "preallocate",
        _BOOLEAN,
        False,
        "Whether a new segment file gets its full size at once.",
        synonyms=_broker("log.preallocate"),
        fixed_because="a segment file holds record batches only and grows with them",
    ),
    ConfigKey(
        "remote.log.copy.disable",
        _BOOLEAN,
        False,
        "Whether copying to remote storage has stopped.",
        fixed_because=_NO_TIER,
    ),
    ConfigKey(
        "remote.log.delete.on.disable",
        _BOOLEAN,
        False,
        "Whether remote data goes when remote storage is switched off.",
        fixed_because=_NO_TIER,
    ),
    ConfigKey(
        "remote.storage.enable",
        _BOOLEAN,
        False,
        "Whether old segments move to remote storage.",
        fixed_because=_NO_TIER,
    ),
    ConfigKey(
        "retention.bytes",
        _LONG,
        -1,
        "Bytes a partition may hold before its oldest segments are deleted; -1 is no limit.",
        synonyms=_broker("log.retention.bytes"),
    ),
    ConfigKey(
        "retention.ms",
        _LONG,
        168 * HOUR_MS,
        "The age at which segments are deleted; -1 is no limit.",
        low=-1,
        synonyms=(
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", MINUTE_MS),
            Synonym("log.retention.hours", HOUR_MS),
        ),
    ),
    ConfigKey(
        "segment.bytes",
        _INT,
        1024 * 1024 * 1024,
        "The size at which a new segment file starts.",
        low=1024 * 1024,
        synonyms=_broker("log.segment.bytes"),
    ),
    ConfigKey(
        "segment.index.bytes",
        _INT,
        10 * 1024 * 1024,
        "The largest offset index of a segment.",
        low=4,
        synonyms=_broker("log.index.size.max.bytes"),
        fixed_because="an index grows with its segment; limit it with segment.bytes",
    ),
    ConfigKey(
        "segment.jitter.ms",
        _LONG,
        0,
        "Random time taken off segment.ms, so that segments do not all roll at once.",
        low=0,
        synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS)),
        fixed_because="segments roll exactly after segment.ms",
    ),
    ConfigKey(
        "segment.ms",
        _LONG,
        168 * HOUR_MS,
        "The age at which a new segment file starts even if the last one is not full.",
        low=1,
        synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS)),
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        _BOOLEAN,
        False,
        "Whether a replica outside the ISR may lead when no other can: loses records.",
        synonyms=_broker("unclean.leader.election.enable"),
    ),
    ConfigKey(
        "chronik.durability",
        _STRING,
        "fsync",
        "When a record counts as written: 'fsync' once it is on disk, 'os' once the operating "
        "system has it (Kafka's way). Empty takes the node's setting.",
        choices=("fsync", "os", ""),
        synonyms=_broker("chronik.durability"),
        empty_inherits=True,
    ),
)

TOPIC_KEYS: Final[Mapping[str, ConfigKey]] = {key.name: key for key in _KEYS}
