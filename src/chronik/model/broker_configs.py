"""The configuration keys a node has, with Kafka's names and defaults, and which can change live.

The `log.*` keys that are a topic key's default are made from that table, so they cannot differ.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from chronik.model.configs import (
    INT_MAX,
    BrokerLayers,
    ConfigEntry,
    ConfigError,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ConfigValue,
    UpdateMode,
    entry_of,
)
from chronik.model.limits import (
    BROKER_HEARTBEAT_MS,
    BROKER_SESSION_MS,
    CONNECTIONS_MAX,
    FETCH_BYTES_MAX,
    FETCH_SESSIONS_MAX,
    REPLICA_PARTITION_BYTES_MAX,
    REPLICA_RESPONSE_BYTES_MAX,
    REPLICA_WAIT_MS_MAX,
    REQUEST_BYTES_MAX,
)
from chronik.model.topic_keys import TOPIC_KEYS

_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _LIST, _SHORT = ConfigType.LONG, ConfigType.LIST, ConfigType.SHORT
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_FIXED: Final = UpdateMode.READ_ONLY
_LIVE: Final = UpdateMode.CLUSTER_WIDE
_BOUND: Final = "it is one of the node's fixed bounds"
_NO_TRANSACTIONS: Final = "transactions are not served"
_NO_CONSUMER_PROTOCOL: Final = "the group protocol of KIP-848 is not served"


def _key(
    name: str,
    type_: ConfigType,
    default: ConfigValue,
    doc: str,
    low: float | None = None,
    mode: UpdateMode = _FIXED,
    *,
    why: str = "",
) -> ConfigKey:
    """`why` marks a key that says how things are and cannot be set otherwise."""
    return ConfigKey(name, type_, default, doc, low=low, mode=mode, fixed_because=why)


_OWN: Final = (
    _key("node.id", _INT, None, "This node's number, unique in the cluster.", 0),
    _key("broker.id", _INT, None, "The same as node.id, for older tools.", 0),
    _key("broker.rack", _STRING, None, "Where the node stands; replicas are spread over racks."),
    _key("process.roles", _LIST, ("broker", "controller"), "What the node does."),
    _key("listeners", _LIST, ("PLAINTEXT://:9092",), "Addresses the node listens on."),
    _key("advertised.listeners", _LIST, None, "Addresses given to clients; listeners if empty."),
    _key("log.dirs", _LIST, None, "The directory that holds the node's data."),
    _key("num.partitions", _INT, 1, "Partitions of a topic whose creator did not say.", 1),
    _key("default.replication.factor", _INT, 1, "Replicas of a topic likewise.", 1),
    _key("auto.create.topics.enable", _BOOLEAN, True, "Whether asking for a topic creates it."),
    _key("delete.topic.enable", _BOOLEAN, True, "Whether topics can be deleted."),
    _key(
        "controlled.shutdown.enable",
        _BOOLEAN,
        True,
        "Whether a stopping node hands over first.",
        why="a node that is asked to stop always hands over",
    ),
    _key("auto.leader.rebalance.enable", _BOOLEAN, True, "Whether preferred leaders return."),
    _key("leader.imbalance.check.interval.seconds", _LONG, 300, "How often that is looked at.", 1),
    _key(
        "leader.imbalance.per.broker.percentage",
        _INT,
        10,
        "A node that lacks more of its preferred partitions gets them back.",
        0,
    ),
    _key("log.retention.check.interval.ms", _LONG, 300_000, "How often retention runs.", 1),
    _key("log.cleaner.enable", _BOOLEAN, True, "Whether compaction runs."),
    _key("log.cleaner.backoff.ms", _LONG, 15_000, "Pause when nothing is to compact.", 0),
    _key(
        "socket.request.max.bytes", _INT, REQUEST_BYTES_MAX, "The largest request.", 1, why=_BOUND
    ),
    _key("fetch.max.bytes", _INT, FETCH_BYTES_MAX, "The largest answer to a fetch.", why=_BOUND),
    _key("max.connections", _INT, CONNECTIONS_MAX, "Open connections of the node."),
    _key(
        "max.incremental.fetch.session.cache.slots",
        _INT,
        FETCH_SESSIONS_MAX,
        "Fetch sessions kept.",
        why=_BOUND,
    ),
    _key(
        "connections.max.idle.ms",
        _LONG,
        -1,
        "An idle connection is closed after this.",
        why="idle connections cost next to nothing and stay",
    ),
    _key("offset.metadata.max.bytes", _INT, 4096, "The largest text stored with an offset."),
    _key("offsets.retention.minutes", _INT, 10_080, "How long an empty group's offsets live.", 1),
    _key("offsets.retention.check.interval.ms", _LONG, 600_000, "How often that is done.", 1),
    _key("offsets.topic.num.partitions", _INT, 50, "Partitions of the offsets topic.", 1),
    _key("offsets.topic.replication.factor", _SHORT, 3, "Its replicas, if there are nodes.", 1),
    _key("group.initial.rebalance.delay.ms", _INT, 3000, "A new group waits this for members."),
    _key("group.min.session.timeout.ms", _INT, 6000, "The shortest session a member may ask."),
    _key("group.max.session.timeout.ms", _INT, 1_800_000, "The longest one."),
    _key("group.max.size", _INT, INT_MAX, "Members a group may have.", 1),
    _key(
        "group.consumer.session.timeout.ms",
        _INT,
        45_000,
        "Session of KIP-848 members.",
        1,
        why=_NO_CONSUMER_PROTOCOL,
    ),
    _key(
        "group.consumer.heartbeat.interval.ms",
        _INT,
        5000,
        "Their heartbeat.",
        1,
        why=_NO_CONSUMER_PROTOCOL,
    ),
    _key(
        "transaction.max.timeout.ms",
        _INT,
        900_000,
        "The longest transaction timeout.",
        1,
        why=_NO_TRANSACTIONS,
    ),
    _key(
        "transactional.id.expiration.ms",
        _INT,
        604_800_000,
        "Idle ids are forgotten.",
        1,
        why=_NO_TRANSACTIONS,
    ),
    _key(
        "transaction.state.log.num.partitions",
        _INT,
        50,
        "Partitions of that topic.",
        1,
        why=_NO_TRANSACTIONS,
    ),
    _key(
        "transaction.state.log.replication.factor",
        _SHORT,
        3,
        "Its replicas.",
        1,
        why=_NO_TRANSACTIONS,
    ),
    _key("producer.id.expiration.ms", _INT, 86_400_000, "An idle producer is forgotten.", 1),
    ConfigKey(
        "replica.selector.class",
        _STRING,
        "",
        "Where consumers read: at the leader, or at a replica in their own rack (KIP-392).",
        choices=("", RACK_AWARE_SELECTOR),
    ),
    _key("replica.lag.time.max.ms", _LONG, 30_000, "A follower further behind leaves the ISR."),
    _key(
        "replica.high.watermark.checkpoint.interval.ms",
        _LONG,
        5000,
        "How often the watermarks are written for the next start.",
        1,
    ),
    _key(
        "chronik.watermark.checkpoint.min.interval.ms",
        _LONG,
        500,
        "How often at most, where a written watermark is far behind.",
        100,
    ),
    _key(
        "chronik.watermark.checkpoint.lag.messages",
        _LONG,
        10_000,
        "Messages behind which a written watermark is far behind.",
        1,
    ),
    _key(
        "chronik.watermark.behind.warn.messages",
        _LONG,
        10,
        "A log end that stays this far ahead of the watermark is reported.",
        0,
    ),
    _key(
        "chronik.watermark.behind.alarm.messages",
        _LONG,
        100,
        "From here on it is an alarm.",
        0,
    ),
    _key(
        "replica.fetch.max.bytes",
        _INT,
        REPLICA_PARTITION_BYTES_MAX,
        "Bytes per partition of a follower's fetch.",
        why=_BOUND,
    ),
    _key(
        "replica.fetch.response.max.bytes",
        _INT,
        REPLICA_RESPONSE_BYTES_MAX,
        "Bytes of a follower's fetch.",
        why=_BOUND,
    ),
    _key(
        "replica.fetch.wait.max.ms",
        _INT,
        REPLICA_WAIT_MS_MAX,
        "How long a follower's fetch waits for data.",
        why=_BOUND,
    ),
    _key(
        "broker.session.timeout.ms",
        _INT,
        BROKER_SESSION_MS,
        "A silent node is fenced after this.",
        why=_BOUND,
    ),
    _key(
        "broker.heartbeat.interval.ms",
        _INT,
        BROKER_HEARTBEAT_MS,
        "How often a node reports.",
        why=_BOUND,
    ),
)


def _from_topics() -> Iterator[ConfigKey]:
    """One broker key per synonym of a topic key; only the last one in a chain has a default."""
    for topic_key in TOPIC_KEYS.values():
        for synonym in topic_key.synonyms:
            last = synonym is topic_key.synonyms[-1]
            default = topic_key.default if last else None
            if last and synonym.factor > 1:
                assert isinstance(topic_key.default, int)
                default = topic_key.default // synonym.factor
            # Only the finest unit changes live, as in Kafka.
            first = synonym is topic_key.synonyms[0]
            yield replace(
                topic_key,
                name=synonym.name,
                type=topic_key.type if synonym.factor == 1 else _INT,
                default=default,
                doc=f"The default of the topic key {topic_key.name}: {topic_key.doc}",
                synonyms=(),
                mode=_LIVE if first else _FIXED,
                choices=tuple(choice for choice in topic_key.choices if choice),
                empty_inherits=False,
            )


BROKER_KEYS: Final[Mapping[str, ConfigKey]] = {key.name: key for key in (*_from_topics(), *_OWN)}


def broker_key(name: str) -> ConfigKey:
    """The key of a name, or a ConfigError."""
    key = BROKER_KEYS.get(name)
    if key is None:
        raise ConfigError(f"Unknown broker config name: {name}")
    return key


def validate_dynamic(values: Mapping[str, str | None], *, cluster_default: bool) -> None:
    """Raises ConfigError unless every key may be changed on a running node to its value."""
    fixed = [name for name in values if broker_key(name).mode is UpdateMode.READ_ONLY]
    if fixed:
        raise ConfigError(
            f"Cannot update these configs dynamically: [{', '.join(fixed)}]; "
            "set them in the node's configuration file and restart it"
        )
    for name, text in values.items():
        key = broker_key(name)
        if cluster_default and key.mode is UpdateMode.PER_BROKER:
            raise ConfigError(f"{name} belongs to one broker: name the broker whose value it is")
        key.parse(text)


def validate_static(values: Mapping[str, str]) -> None:
    """Raises ConfigError unless a node can start with these values."""
    for name, text in values.items():
        broker_key(name).parse(text)


def effective(name: str, layers: BrokerLayers) -> ConfigValue:
    """The typed value a node uses for one of its keys."""
    key = broker_key(name)
    for _, texts in layers.sources():
        if name in texts:
            return key.parse(texts[name])
    return key.default


def describe_broker(layers: BrokerLayers, names: Iterable[str] | None = None) -> list[ConfigEntry]:
    """DescribeConfigs of one node."""
    wanted = BROKER_KEYS if names is None else [name for name in names if name in BROKER_KEYS]
    return [_describe(BROKER_KEYS[name], layers) for name in wanted]


def describe_cluster_default(
    dynamic_default: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """DescribeConfigs of the broker resource with the empty name: only what was set there."""
    wanted = None if names is None else set(names)
    layers = BrokerLayers(dynamic_default=dynamic_default)
    return [
        replace(_describe(BROKER_KEYS[name], layers), read_only=False)
        for name in dynamic_default
        if name in BROKER_KEYS and (wanted is None or name in wanted)
    ]


def _describe(key: ConfigKey, layers: BrokerLayers) -> ConfigEntry:
    found = [
        ConfigSynonym(key.name, texts[key.name], source)
        for source, texts in layers.sources()
        if key.name in texts
    ]
    default = key.format(key.default)
    if default is not None:
        found.append(ConfigSynonym(key.name, default, ConfigSource.DEFAULT_CONFIG))
    return entry_of(key, tuple(found), found[0].value if found else default)
