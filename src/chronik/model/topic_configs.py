"""The effective configuration of a topic: which source wins, typed, and how it is described.

The keys are in `topic_keys.py`. Start at `resolve` (typed values), then `describe_topic`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from chronik.model.configs import (
    LONG_MAX,
    NO_LAYERS,
    BrokerLayers,
    ConfigEntry,
    ConfigError,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigValue,
    entry_of,
)
from chronik.model.limits import BATCH_BYTES_MAX
from chronik.model.topic_keys import HOUR_MS, MINUTE_MS, TOPIC_KEYS


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The effective, typed values of one topic. A field is the key with '_' for '.'."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = 24 * HOUR_MS
    file_delete_delay_ms: int = MINUTE_MS
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = BATCH_BYTES_MAX
    message_timestamp_after_max_ms: int = HOUR_MS
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    retention_bytes: int = -1
    retention_ms: int = 168 * HOUR_MS
    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 168 * HOUR_MS
    unclean_leader_election_enable: bool = False
    chronik_durability: str = "fsync"

    @property
    def compacted(self) -> bool:
        """True where the last record of each key is kept."""
        return "compact" in self.cleanup_policy

    @property
    def compression_level(self) -> int | None:
        """The level of the codec named by compression.type; None where it has no level."""
        levels = {
            "gzip": self.compression_gzip_level if self.compression_gzip_level > 0 else None,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)

    @property
    def deleted(self) -> bool:
        """True where old segments are dropped by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        """True where the leader stamps the records."""
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def fsync(self) -> bool:
        """True where a record counts only once it is on disk."""
        return self.chronik_durability == "fsync"


_FIELD_KEYS: Final = {
    field.name: TOPIC_KEYS[field.name.replace("_", ".")] for field in fields(TopicConfig)
}
_NAME_FIELDS: Final = {key.name: name for name, key in _FIELD_KEYS.items()}
DEFAULT_TOPIC_CONFIG: Final = TopicConfig()


def topic_key(name: str) -> ConfigKey:
    """The key of a name, or a ConfigError in Kafka's words."""
    key = TOPIC_KEYS.get(name)
    if key is None:
        raise ConfigError(f"Unknown topic config name: {name}")
    return key


def validate_topic(
    overrides: Mapping[str, str | None], base: TopicConfig = DEFAULT_TOPIC_CONFIG
) -> None:
    """Raises ConfigError for the first override that cannot be accepted."""
    values: dict[str, Any] = {}
    for name, text in overrides.items():
        values[name] = topic_key(name).parse(text)
    low = values.get("min.compaction.lag.ms", base.min_compaction_lag_ms)
    high = values.get("max.compaction.lag.ms", base.max_compaction_lag_ms)
    if low > high:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > "
            f"max.compaction.lag.ms ({high})"
        )
    if values.get("chronik.durability", base.chronik_durability) == "os":
        _refuse_flushes(values)


def _refuse_flushes(values: Mapping[str, Any]) -> None:
    """With durability 'os' nothing is synced: a promise to do so is not taken."""
    for name in ("flush.messages", "flush.ms"):
        if values.get(name, LONG_MAX) != LONG_MAX:
            raise ConfigError(
                f"{name} is not kept with chronik.durability=os, where the operating system "
                "decides when to sync: leave it out, or set chronik.durability=fsync"
            )


def base_config(layers: BrokerLayers) -> TopicConfig:
    """What a topic without overrides has on a node; keep it and pass it to `resolve`."""
    values: dict[str, Any] = {}
    for name, key in _FIELD_KEYS.items():
        found = next(_broker_places(key, layers), None)
        if found is not None:
            values[name] = _in_topic_unit(key, found)
    return replace(DEFAULT_TOPIC_CONFIG, **values) if values else DEFAULT_TOPIC_CONFIG


def resolve(overrides: Mapping[str, str], base: TopicConfig = DEFAULT_TOPIC_CONFIG) -> TopicConfig:
    """The effective values of a topic: its overrides over `base_config` of the node."""
    values: dict[str, Any] = {}
    for name, text in overrides.items():
        field_name = _NAME_FIELDS.get(name)
        if field_name is not None and not (text == "" and TOPIC_KEYS[name].empty_inherits):
            values[field_name] = TOPIC_KEYS[name].parse(text)
    return replace(base, **values) if values else base


def describe_topic(
    overrides: Mapping[str, str],
    layers: BrokerLayers = NO_LAYERS,
    names: Iterable[str] | None = None,
) -> list[ConfigEntry]:
    """DescribeConfigs of a topic: every key (or those named), with every place that has a value."""
    wanted = TOPIC_KEYS if names is None else [name for name in names if name in TOPIC_KEYS]
    return [_describe(TOPIC_KEYS[name], overrides, layers) for name in wanted]


def _describe(key: ConfigKey, overrides: Mapping[str, str], layers: BrokerLayers) -> ConfigEntry:
    text = overrides.get(key.name)
    own = text is not None and not (text == "" and key.empty_inherits)
    places = list(_broker_places(key, layers))
    found = [ConfigSynonym(key.name, text, ConfigSource.DYNAMIC_TOPIC_CONFIG)] if own else []
    found += places
    default = key.format(key.default)
    if key.synonyms:
        last = key.synonyms[-1]
        shown = default if last.factor == 1 else _divided(key, last.factor)
        found.append(ConfigSynonym(last.name, shown, ConfigSource.DEFAULT_CONFIG))
    value = default
    if own:
        value = text
    elif places:
        value = key.format(_in_topic_unit(key, places[0]))
    return entry_of(key, tuple(found), value)


def _broker_places(key: ConfigKey, layers: BrokerLayers) -> Iterator[ConfigSynonym]:
    for source, texts in layers.sources():
        for synonym in key.synonyms:
            text = texts.get(synonym.name)
            if text is not None:
                yield ConfigSynonym(synonym.name, text, source)


def _in_topic_unit(key: ConfigKey, place: ConfigSynonym) -> ConfigValue:
    factor = next(synonym.factor for synonym in key.synonyms if synonym.name == place.name)
    if factor == 1:
        return key.parse(place.value)
    number = int(place.value or "0")
    # -1 is "no limit" in every unit.
    return number if number < 0 else number * factor


def _divided(key: ConfigKey, factor: int) -> str:
    assert isinstance(key.default, int)
    return str(key.default // factor)
