"""CreateTopics: names, counts, assignments and configurations checked, partitions placed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from chronik.cluster.commands import (
    OK,
    ControllerSettings,
    CreatedTopic,
    CreateTopics,
    Decision,
    NewTopic,
)
from chronik.cluster.image import ClusterImage, PartitionState, Resource, ResourceType
from chronik.cluster.placement import PlacementError, place
from chronik.cluster.records import ConfigChanged, PartitionCreated, Record, TopicCreated
from chronik.cluster.refused import Refused, refuse_repeated, refuse_too_many
from chronik.model.configs import ConfigError
from chronik.model.errors import ErrorCode
from chronik.model.names import METADATA_TOPIC, collision_key, topic_name_error
from chronik.model.topic_configs import TopicConfig, base_config, validate_topic


@dataclass(slots=True)
class _Plan:
    """What the topics before this one in the request have taken."""

    start_index: int
    partitions_left: int
    base: TopicConfig
    ids: set[bytes] = field(default_factory=set)
    collisions: dict[str, str] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)


def create_topics(
    image: ClusterImage, command: CreateTopics, settings: ControllerSettings
) -> Decision[tuple[CreatedTopic, ...]]:
    """Each topic is created or refused by itself; a name given twice is refused both times."""
    counts = Counter(topic.name for topic in command.topics)
    base = base_config(image.layers(-1, settings.static_configs))
    plan = _Plan(command.start_index, settings.partitions_per_request_max, base)
    plan.collisions = {
        collision_key(name): name for name in image.topics if "." in name or "_" in name
    }
    results: dict[str, CreatedTopic] = {}
    for topic in command.topics:
        try:
            refuse_repeated(counts[topic.name] > 1, "Duplicate topic name.")
            results[topic.name] = _create(image, topic, settings, plan)
        except Refused as refused:
            results[topic.name] = CreatedTopic(topic.name, refused.error)
    records = () if command.validate_only else tuple(plan.records)
    return Decision(records, tuple(results.values()))


def _create(
    image: ClusterImage, topic: NewTopic, settings: ControllerSettings, plan: _Plan
) -> CreatedTopic:
    present = image.topics.get(topic.name)
    if present is not None and present.id == topic.topic_id:
        # The same command again, after an attempt of which nobody knew the fate.
        count, factor = len(present.partitions), len(present.partitions[0].replicas)
        configs = dict(image.topic_overrides(topic.name))
        return CreatedTopic(topic.name, OK, present.id, count, factor, configs)
    _check_name(image, topic, plan)
    configs = _check_configs(topic, plan.base)
    states = _partitions(image, topic, settings, plan)
    refuse_too_many(len(states), plan.partitions_left, settings)
    _check_id(image, topic, plan)
    plan.partitions_left -= len(states)
    plan.start_index += len(states)
    plan.collisions[collision_key(topic.name)] = topic.name
    plan.records += _records(topic, states, configs)
    factor = len(states[0].replicas)
    return CreatedTopic(topic.name, OK, topic.topic_id, len(states), factor, configs)


def _records(
    topic: NewTopic, states: list[PartitionState], configs: Mapping[str, str]
) -> Iterable[Record]:
    yield TopicCreated(topic.topic_id, topic.name)
    for index, state in enumerate(states):
        yield PartitionCreated(topic.topic_id, index, state)
    for key, value in configs.items():
        yield ConfigChanged(Resource(ResourceType.TOPIC, topic.name), key, value)


def _check_name(image: ClusterImage, topic: NewTopic, plan: _Plan) -> None:
    wrong = topic_name_error(topic.name)
    if wrong is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
    if topic.name == METADATA_TOPIC:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {topic.name} is prohibited."
        )
    if topic.name in image.topics:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    other = plan.collisions.get(collision_key(topic.name))
    if other is not None:
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{topic.name}' collides with existing topic: {other}",
        )


def _check_id(image: ClusterImage, topic: NewTopic, plan: _Plan) -> None:
    taken = topic.topic_id in image.topic_names or topic.topic_id in plan.ids
    if taken or len(topic.topic_id) != 16 or not any(topic.topic_id):
        raise Refused(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"The id chosen for topic '{topic.name}' is not a new one; try again.",
        )
    plan.ids.add(topic.topic_id)


def _check_configs(topic: NewTopic, base: TopicConfig) -> dict[str, str]:
    configs = dict(topic.configs)  # as in Kafka, the last value of a key counts
    try:
        validate_topic(configs, base)
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from error
    return {key: value for key, value in configs.items() if value is not None}


def _partitions(
    image: ClusterImage, topic: NewTopic, settings: ControllerSettings, plan: _Plan
) -> list[PartitionState]:
    if topic.assignments:
        return _manual(image, topic)
    count = settings.num_partitions if topic.partitions == -1 else topic.partitions
    if count < 1:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    refuse_too_many(count, plan.partitions_left, settings)
    factor = topic.replication_factor
    if factor == -1:
        factor = settings.default_replication_factor
    if factor < 1:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    return placed(image, settings, count, factor, plan.start_index)


def _manual(image: ClusterImage, topic: NewTopic) -> list[PartitionState]:
    if topic.replication_factor != -1:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set "
            "to -1.",
        )
    if topic.partitions != -1:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    by_index = dict(topic.assignments)
    if sorted(index for index, _ in topic.assignments) != list(range(len(by_index))):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return assigned(image, [by_index[index] for index in range(len(by_index))])


def placed(
    image: ClusterImage,
    settings: ControllerSettings,
    count: int,
    factor: int,
    start_index: int,
    first_partition: int = 0,
) -> list[PartitionState]:
    """New partitions on the brokers there are; a leader is always a live one (FM 33)."""
    brokers = image.live_brokers()
    if settings.place_on_fenced and 0 < len(brokers) < factor:
        brokers += [image.brokers[one] for one in sorted(image.brokers) if not image.is_live(one)]
    try:
        rows = place(brokers, count, factor, start_index, first_partition)
    except PlacementError as error:
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, str(error)) from error
    states = []
    for row in rows:
        live = tuple(one for one in row if image.is_live(one))
        if not live:
            raise Refused(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Too few live brokers to give every partition a leader; start more brokers.",
            )
        states.append(PartitionState(row, live, live[0]))
    return states


def assigned(
    image: ClusterImage, rows: list[tuple[int, ...]], factor: int | None = None
) -> list[PartitionState]:
    """New partitions where the caller says; their first live replica leads."""
    states = []
    for index, row in enumerate(rows):
        check_replicas(image, row)
        factor = len(row) if factor is None else factor
        if len(row) != factor:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes a partition with {len(row)} replica(s), "
                "but this is not consistent with previous partitions, which have "
                f"{factor} replica(s).",
            )
        live = tuple(one for one in row if image.is_live(one))
        if not live:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "All brokers specified in the manual partition assignment for partition "
                f"{index} are fenced or in controlled shutdown.",
            )
        states.append(PartitionState(row, live, live[0]))
    return states


def check_replicas(image: ClusterImage, row: tuple[int, ...]) -> None:
    """Refuses a list of replicas that is empty, repeats a broker or names an unknown one."""
    if not row:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        )
    for broker, count in Counter(row).items():
        if count > 1:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes the broker {broker} more than once.",
            )
        if broker not in image.brokers:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes broker {broker}, but no such broker is "
                "registered.",
            )
