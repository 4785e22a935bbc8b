"""Topic configuration: texts in, typed values out, Kafka's words where a value is refused."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.model.configs import BrokerLayers, ConfigError, ConfigSource, ConfigType
from chronik.model.topic_configs import (
    TopicConfig,
    base_config,
    describe_topic,
    resolve,
    validate_topic,
)
from chronik.model.topic_keys import TOPIC_KEYS

# What Apache Kafka 4.3.1 answers to DescribeConfigs of a topic without overrides.
KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}

# The texts are Kafka 4.3.1's own answers.
REFUSED_AS_KAFKA_DOES = [
    (
        "retention.ms",
        "-5",
        "Invalid value -5 for configuration retention.ms: Value must be at least -1",
    ),
    ("retention.ms", "abc", "Not a number of type LONG"),
    ("retention.ms", "1_0", "Not a number of type LONG"),
    ("retention.ms", "", "Not a number of type LONG"),
    ("retention.ms", "9" * 5000, "Not a number of type LONG"),
    ("cleanup.policy", "x", "String must be one of: compact, delete"),
    ("compression.type", "foo", "one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
    ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
    ("compression.zstd.level", "30", "Value must be no more than 22"),
    ("min.cleanable.dirty.ratio", "2", "Invalid value 2.0 for configuration"),
    ("min.cleanable.dirty.ratio", "x", "Not a number of type DOUBLE"),
    ("preallocate", "yes", "Expected value to be either true or false"),
    ("segment.bytes", "10", "Value must be at least 1048576"),
    ("segment.bytes", "99999999999", "Not a number of type INT"),
    ("min.insync.replicas", "0", "Value must be at least 1"),
    ("message.timestamp.type", "createtime", "one of: CreateTime, LogAppendTime"),
    ("leader.replication.throttled.replicas", "x", "must be the literal '*' or a list"),
    ("segment.jitter.ms", "-1", "Value must be at least 0"),
    ("max.message.bytes", "-1", "Value must be at least 0"),
    ("flush.messages", "0", "Value must be at least 1"),
    ("message.format.version", "2.0", "Unknown topic config name: message.format.version"),
    ("nosuch", "1", "Unknown topic config name: nosuch"),
]

NOT_SUPPORTED_HERE = [
    ("preallocate", "true"),
    ("segment.index.bytes", "4096"),
    ("segment.jitter.ms", "5"),
    ("leader.replication.throttled.replicas", "*"),
    ("follower.replication.throttled.replicas", "0:1"),
    ("remote.storage.enable", "true"),
    ("remote.log.copy.disable", "true"),
    ("remote.log.delete.on.disable", "true"),
    ("local.retention.ms", "5"),
    ("local.retention.bytes", "5"),
]


def test_every_key_of_kafka_is_known_with_its_default() -> None:
    ours = {entry.name: entry.value for entry in describe_topic({})}
    assert ours == {**KAFKA_DEFAULTS, "chronik.durability": "fsync"}


def test_the_typed_defaults_are_those_of_the_table() -> None:
    for field in fields(TopicConfig):
        assert (
            getattr(TopicConfig(), field.name) == TOPIC_KEYS[field.name.replace("_", ".")].default
        )


def test_a_key_works_or_says_why_it_does_not() -> None:
    effective = {field.name.replace("_", ".") for field in fields(TopicConfig)}
    refused = {name for name, key in TOPIC_KEYS.items() if key.fixed_because}
    assert effective | refused == set(TOPIC_KEYS)
    assert not effective & refused
    assert refused == {name for name, _ in NOT_SUPPORTED_HERE}


@pytest.mark.parametrize(("name", "text", "complaint"), REFUSED_AS_KAFKA_DOES)
def test_fm04_bad_values_are_refused_in_kafkas_words(name: str, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_topic({name: text})
    assert complaint in str(caught.value)


@pytest.mark.parametrize(("name", "text"), NOT_SUPPORTED_HERE)
def test_fm80_what_does_nothing_here_is_accepted_at_its_default_only(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=r"only '.*' is supported: .+"):
        validate_topic({name: text})
    validate_topic({name: KAFKA_DEFAULTS[name]})


def test_a_null_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Null value not supported for : retention\.ms"):
        validate_topic({"retention.ms": None})


def test_compaction_lags_must_not_cross() -> None:
    with pytest.raises(ConfigError, match=r"min.compaction.lag.ms \(10\) > max.compaction.lag.ms"):
        validate_topic({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


def test_texts_are_read_as_kafka_reads_them() -> None:
    config = resolve(
        {
            "retention.ms": " +100 ",
            "cleanup.policy": "compact, delete,compact",
            "unclean.leader.election.enable": "TRUE",
            "min.cleanable.dirty.ratio": "0.25",
        }
    )
    assert config.retention_ms == 100
    assert config.cleanup_policy == ("compact", "delete")
    assert config.compacted
    assert config.deleted
    assert config.unclean_leader_election_enable
    assert config.min_cleanable_dirty_ratio == 0.25


def test_the_empty_cleanup_policy_keeps_everything() -> None:
    config = resolve({"cleanup.policy": ""})
    assert not config.compacted
    assert not config.deleted


def test_sources_win_in_kafkas_order() -> None:
    static = {"log.retention.hours": "2"}
    default = {"log.retention.ms": "3000"}
    dynamic = {"log.retention.ms": "4000"}
    assert base_config(BrokerLayers(static=static)).retention_ms == 2 * 3_600_000
    assert base_config(BrokerLayers(dynamic_default=default, static=static)).retention_ms == 3000
    layers = BrokerLayers(dynamic, default, static)
    assert base_config(layers).retention_ms == 4000
    assert resolve({"retention.ms": "5000"}, base_config(layers)).retention_ms == 5000


def test_milliseconds_win_over_minutes_over_hours() -> None:
    static = {"log.retention.hours": "1", "log.retention.minutes": "2"}
    assert base_config(BrokerLayers(static=static)).retention_ms == 120_000
    static["log.retention.ms"] = "7"
    assert base_config(BrokerLayers(static=static)).retention_ms == 7


def test_no_limit_is_no_limit_in_every_unit() -> None:
    assert base_config(BrokerLayers(static={"log.retention.hours": "-1"})).retention_ms == -1


def test_empty_durability_takes_the_nodes() -> None:
    base = base_config(BrokerLayers(static={"chronik.durability": "os"}))
    assert not resolve({"chronik.durability": ""}, base).fsync
    assert resolve({"chronik.durability": "fsync"}, base).fsync
    assert resolve({}).fsync


def test_describe_names_the_source_and_every_synonym() -> None:
    layers = BrokerLayers({"log.retention.ms": "4000"}, {}, {"log.retention.hours": "2"})
    (entry,) = describe_topic({"retention.ms": "5000"}, layers, ["retention.ms", "nosuch"])
    assert (entry.value, entry.source) == ("5000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert entry.type is ConfigType.LONG
    assert [(one.name, one.value, int(one.source)) for one in entry.synonyms] == [
        ("retention.ms", "5000", 1),
        ("log.retention.ms", "4000", 2),
        ("log.retention.hours", "2", 4),
        ("log.retention.hours", "168", 5),
    ]
    (entry,) = describe_topic(
        {}, BrokerLayers(static={"log.retention.hours": "2"}), ["retention.ms"]
    )
    assert (entry.value, entry.source) == ("7200000", ConfigSource.STATIC_BROKER_CONFIG)


@given(st.sampled_from(sorted(TOPIC_KEYS)), st.text(max_size=30))
def test_any_text_is_accepted_or_refused_with_a_message(name: str, text: str) -> None:
    key = TOPIC_KEYS[name]
    complaint = ""
    try:
        value = key.parse(text)
        assert key.parse(key.format(value)) == value
    except ConfigError as error:
        complaint = str(error)
    assert not complaint or name in complaint


@given(st.integers(min_value=-1, max_value=2**63 - 1))
def test_numbers_survive_text(number: int) -> None:
    key = TOPIC_KEYS["retention.ms"]
    assert key.parse(key.format(number)) == number


@pytest.mark.parametrize("name", ["flush.messages", "flush.ms"])
def test_a_promise_to_sync_is_taken_only_where_it_is_kept(name: str) -> None:
    validate_topic({name: "1"})
    validate_topic({name: "1", "chronik.durability": "fsync"}, TopicConfig(chronik_durability="os"))
    validate_topic({name: str(2**63 - 1), "chronik.durability": "os"})
    with pytest.raises(ConfigError, match=f"{name} is not kept with chronik.durability=os"):
        validate_topic({name: "1", "chronik.durability": "os"})
    with pytest.raises(ConfigError, match="leave it out, or set"):
        validate_topic({name: "1"}, TopicConfig(chronik_durability="os"))
