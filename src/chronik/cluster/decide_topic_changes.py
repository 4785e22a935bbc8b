"""DeleteTopics and CreatePartitions."""

from collections import Counter

from chronik.cluster.commands import (
    ControllerSettings,
    CreatePartitions,
    Decision,
    DeletedTopic,
    DeleteTopics,
    NamedError,
    NewPartitions,
    TopicRef,
)
from chronik.cluster.decide_topics import assigned, placed
from chronik.cluster.image import ZERO_ID, ClusterImage, PartitionState, Topic
from chronik.cluster.records import PartitionCreated, Record, TopicDeleted
from chronik.cluster.refused import Refused, refuse_repeated, refuse_too_many
from chronik.model.errors import ErrorCode


def delete_topics(
    image: ClusterImage, command: DeleteTopics, settings: ControllerSettings
) -> Decision[tuple[DeletedTopic, ...]]:
    """Each topic is deleted or refused by itself; one named twice is refused, in one answer."""
    repeated = {ref for ref, count in Counter(command.topics).items() if count > 1}
    found = {ref: _find(image, ref) for ref in command.topics}
    counts = Counter(topic.id for topic in found.values() if topic is not None)
    records: list[Record] = []
    results = []
    for ref, topic in found.items():
        try:
            refuse_repeated(ref in repeated, "The topic appears more than once.")
            doomed = _checked(ref, topic, counts, settings)
            records.append(TopicDeleted(doomed.id))
            results.append(DeletedTopic(doomed.name, doomed.id))
        except Refused as refused:
            results.append(DeletedTopic(ref.name, ref.topic_id, refused.error))
    return Decision(tuple(records), tuple(results))


def _find(image: ClusterImage, ref: TopicRef) -> Topic | None:
    if ref.name is None:
        return image.topic_by_id(ref.topic_id)
    return image.topics.get(ref.name)


def _checked(
    ref: TopicRef, topic: Topic | None, counts: Counter[bytes], settings: ControllerSettings
) -> Topic:
    if ref.name is None and ref.topic_id == ZERO_ID:
        raise Refused(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if ref.name is not None and ref.topic_id != ZERO_ID:
        raise Refused(
            ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        )
    if topic is None and ref.name is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    if topic is None:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        )
    if counts[topic.id] > 1:
        raise Refused(ErrorCode.INVALID_REQUEST, "The topic appears more than once.")
    if not settings.delete_topic_enable:
        raise Refused(
            ErrorCode.TOPIC_DELETION_DISABLED,
            "Topic deletion is disabled; set delete.topic.enable=true on the nodes.",
        )
    return topic


def create_partitions(
    image: ClusterImage, command: CreatePartitions, settings: ControllerSettings
) -> Decision[tuple[NamedError, ...]]:
    """Each topic grows or is refused by itself; one named twice is refused, in one answer."""
    counts = Counter(topic.name for topic in command.topics)
    records: list[Record] = []
    results = []
    for new in {topic.name: topic for topic in command.topics}.values():
        try:
            refuse_repeated(counts[new.name] > 1, "Duplicate topic name.")
            topic = _existing(image, new)
            left = settings.partitions_per_request_max - len(records)
            states = _added(image, topic, new, settings, (command.start_index, left))
            first = len(topic.partitions)
            records += [
                PartitionCreated(topic.id, first + index, state)
                for index, state in enumerate(states)
            ]
            results.append(NamedError(new.name))
        except Refused as refused:
            results.append(NamedError(new.name, refused.error))
    return Decision(() if command.validate_only else tuple(records), tuple(results))


def _existing(image: ClusterImage, new: NewPartitions) -> Topic:
    topic = image.topics.get(new.name)
    if topic is None:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        )
    have = len(topic.partitions)
    if new.count == have:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
    if new.count < have:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {new.name} currently has {have} partition(s); {new.count} would not be an "
            "increase.",
        )
    return topic


def _added(
    image: ClusterImage,
    topic: Topic,
    new: NewPartitions,
    settings: ControllerSettings,
    room: tuple[int, int],
) -> list[PartitionState]:
    start_index, left = room
    have = len(topic.partitions)
    more = new.count - have
    refuse_too_many(more, left, settings)
    factor = len(topic.partitions[0].target_replicas)
    if new.assignments is None:
        return placed(image, settings, more, factor, start_index, have)
    if len(new.assignments) != more:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {more} additional partition(s), but only {len(new.assignments)} "
            "assignment(s) were specified.",
        )
    return assigned(image, list(new.assignments), factor)
