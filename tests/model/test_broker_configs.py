"""Broker configuration: what a node has, what can change while it runs, how it is described."""

from pathlib import Path

import pytest

from chronik.model.broker_configs import (
    BROKER_KEYS,
    broker_key,
    describe_broker,
    describe_cluster_default,
    effective,
    validate_dynamic,
    validate_static,
)
from chronik.model.configs import (
    BrokerLayers,
    ConfigError,
    ConfigKey,
    ConfigSource,
    ConfigType,
    entry_of,
)
from chronik.model.topic_keys import TOPIC_KEYS


def test_every_topic_key_with_a_synonym_has_its_broker_key() -> None:
    for key in TOPIC_KEYS.values():
        for synonym in key.synonyms:
            assert synonym.name in BROKER_KEYS


def test_defaults_parse_to_themselves() -> None:
    for key in BROKER_KEYS.values():
        if key.default is not None:
            assert key.parse(key.format(key.default)) == key.default


def test_coarser_units_have_kafkas_defaults() -> None:
    assert broker_key("log.retention.hours").default == 168
    assert broker_key("log.roll.hours").default == 168
    assert broker_key("log.retention.ms").default is None
    assert broker_key("log.retention.minutes").default is None


def test_read_only_keys_cannot_change_live() -> None:
    for name in ("num.partitions", "auto.create.topics.enable", "log.retention.hours"):
        with pytest.raises(
            ConfigError, match=rf"Cannot update these configs dynamically: \[{name}"
        ):
            validate_dynamic({name: "1"}, cluster_default=False)


def test_live_keys_are_checked() -> None:
    validate_dynamic({"log.retention.ms": "1000"}, cluster_default=True)
    with pytest.raises(ConfigError, match="Not a number of type LONG"):
        validate_dynamic({"log.retention.ms": "xx"}, cluster_default=True)
    with pytest.raises(ConfigError, match="Unknown broker config name: nosuch"):
        validate_dynamic({"nosuch": "1"}, cluster_default=True)


def test_a_node_does_not_start_with_a_bad_value() -> None:
    validate_static({"num.partitions": "3", "chronik.durability": "os"})
    with pytest.raises(ConfigError, match="Value must be at least 1"):
        validate_static({"num.partitions": "0"})
    with pytest.raises(ConfigError, match="one of: fsync, os"):
        validate_static({"chronik.durability": ""})


def test_effective_takes_the_strongest_source() -> None:
    layers = BrokerLayers({"min.insync.replicas": "3"}, {"min.insync.replicas": "2"}, {})
    assert effective("min.insync.replicas", layers) == 3
    assert effective("num.partitions", layers) == 1


def test_describe_shows_sources_and_what_is_read_only() -> None:
    layers = BrokerLayers({}, {"log.retention.ms": "5"}, {"num.partitions": "3"})
    by_name = {entry.name: entry for entry in describe_broker(layers)}
    assert by_name["num.partitions"].value == "3"
    assert by_name["num.partitions"].read_only
    assert by_name["num.partitions"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert [one.value for one in by_name["num.partitions"].synonyms] == ["3", "1"]
    assert not by_name["log.retention.ms"].read_only
    assert by_name["log.retention.ms"].source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert by_name["broker.rack"].value is None


def test_the_cluster_default_shows_only_what_was_set() -> None:
    entries = describe_cluster_default({"log.retention.ms": "5"})
    assert [(entry.name, entry.value) for entry in entries] == [("log.retention.ms", "5")]
    assert describe_cluster_default({"log.retention.ms": "5"}, ["num.partitions"]) == []


def test_a_password_is_never_shown() -> None:
    key = ConfigKey("p", ConfigType.PASSWORD, None, "", check=lambda _: "too short")
    entry = entry_of(key, (), "secret")
    assert entry.sensitive
    assert entry.value is None
    with pytest.raises(ConfigError) as caught:
        key.parse("secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"), [("broker.session.timeout.ms", "9000"), ("connections.max.idle.ms", "1")]
)
def test_what_cannot_be_set_is_refused_with_the_reason(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match="is supported"):
        validate_static({name: value})
    validate_static({name: str(broker_key(name).default)})


SOURCE = Path(__file__).parents[2] / "src" / "chronik"
KEPT_BY_DESIGN = {"file.delete.delay.ms", "flush.messages", "flush.ms"}
"""Bounds from above on what is done at once; see their documentation."""


def test_every_key_is_read_somewhere_or_says_why_it_is_fixed() -> None:
    """Nothing is accepted and then ignored."""
    files = [path for path in SOURCE.rglob("*.py") if path.parent.name not in {"model", "messages"}]
    code = "\n".join(path.read_text() for path in [*files, SOURCE / "model" / "settings.py"])
    code += (SOURCE / "model" / "node_keys.py").read_text()
    topic_defaults = {one.name for key in TOPIC_KEYS.values() for one in key.synonyms}
    unread = {
        name
        for name, key in BROKER_KEYS.items()
        if name not in topic_defaults and not key.fixed_because and f'"{name}"' not in code
    }
    assert unread == set()
    code += (SOURCE / "model" / "topic_configs.py").read_text()
    unread = {
        name
        for name, key in TOPIC_KEYS.items()
        if not key.fixed_because and f".{name.replace('.', '_')}" not in code
    }
    assert unread == KEPT_BY_DESIGN
