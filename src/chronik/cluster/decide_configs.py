"""AlterConfigs and IncrementalAlterConfigs, for topics and brokers; feature levels."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from chronik.cluster.apply import apply
from chronik.cluster.commands import (
    OK,
    AlterConfigs,
    AlterOp,
    ConfigOp,
    ControllerSettings,
    Decision,
    Error,
    IncrementalAlterConfigs,
    ResourceConfigs,
    ResourceError,
    ResourceOps,
    SetFeature,
)
from chronik.cluster.elections import UncleanRule, settle_all
from chronik.cluster.image import NO_LEADER, ClusterImage, Resource, ResourceType
from chronik.cluster.records import ConfigChanged, FeatureLevel, Record
from chronik.cluster.refused import Refused, refuse_repeated
from chronik.model.broker_configs import BROKER_KEYS, validate_dynamic
from chronik.model.configs import ConfigError, ConfigKey, ConfigType
from chronik.model.errors import ErrorCode
from chronik.model.names import topic_name_error
from chronik.model.topic_configs import base_config, validate_topic
from chronik.model.topic_keys import TOPIC_KEYS

_UNCLEAN: Final = "unclean.leader.election.enable"

Wanted = Callable[[Resource], dict[str, str]]
"""All that a resource shall have, given which one it is."""


def incremental_alter_configs(
    image: ClusterImage, command: IncrementalAlterConfigs, settings: ControllerSettings
) -> Decision[tuple[ResourceError, ...]]:
    """SET, DELETE, APPEND and SUBTRACT of single keys (KIP-339)."""

    def after(request: ResourceOps) -> Wanted:
        return lambda resource: _after_ops(image, resource, request.ops)

    wanted = [(one.resource_type, one.name, after(one)) for one in command.resources]
    return _alter(image, wanted, settings, command.validate_only)


def alter_configs(
    image: ClusterImage, command: AlterConfigs, settings: ControllerSettings
) -> Decision[tuple[ResourceError, ...]]:
    """The older form: the resource has afterwards exactly what the request says."""

    def after(request: ResourceConfigs) -> Wanted:
        return lambda _: _as_given(request)

    wanted = [(one.resource_type, one.name, after(one)) for one in command.resources]
    return _alter(image, wanted, settings, command.validate_only)


def set_feature(image: ClusterImage, command: SetFeature, _: ControllerSettings) -> Decision[Error]:
    """Sets one feature's level."""
    if command.level < 0:
        message = f"The level of {command.name} must be 0 or more, not {command.level}."
        return Decision((), Error(ErrorCode.INVALID_REQUEST, message))
    if image.features.get(command.name, 0) == command.level:
        return Decision((), OK)
    return Decision((FeatureLevel(command.name, command.level),), OK)


def _alter(
    image: ClusterImage,
    requests: list[tuple[int, str, Wanted]],
    settings: ControllerSettings,
    validate_only: bool,
) -> Decision[tuple[ResourceError, ...]]:
    counts = Counter((type_, name) for type_, name, _ in requests)
    records: list[Record] = []
    results = []
    for type_, name, wanted in requests:
        try:
            refuse_repeated(counts[type_, name] > 1, "Each resource must appear at most once.")
            resource = _resource(image, type_, name)
            records += _changes(image, resource, wanted(resource), settings)
            results.append(ResourceError(type_, name))
        except Refused as refused:
            results.append(ResourceError(type_, name, refused.error))
    if validate_only:
        return Decision((), tuple(results))
    return Decision((*records, *_newly_allowed(image, records, settings)), tuple(results))


def _newly_allowed(
    image: ClusterImage, records: list[Record], settings: ControllerSettings
) -> Iterable[Record]:
    """Partitions without a leader that may have one once unclean election is switched on."""
    if not any(isinstance(one, ConfigChanged) and one.key == _UNCLEAN for one in records):
        return ()
    after = apply(image, records)
    unclean = UncleanRule(after, after.layers(-1, settings.static_configs))
    return settle_all(after, after.is_live, unclean, lambda state: state.leader == NO_LEADER)


def _resource(image: ClusterImage, type_: int, name: str) -> Resource:
    if type_ == ResourceType.TOPIC:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        wrong = topic_name_error(name)
        if wrong is not None:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
        if name not in image.topics:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
        return Resource(ResourceType.TOPIC, name)
    if type_ != ResourceType.BROKER:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Configuration of resource type {type_} is not supported: only topics (2) and "
            "brokers (4) have one.",
        )
    if name and not (name.isdecimal() and int(name) in image.brokers):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"No broker '{name}' is registered; name a broker id, or nothing for all brokers.",
        )
    return Resource(ResourceType.BROKER, name)


def _changes(
    image: ClusterImage, resource: Resource, new: dict[str, str], settings: ControllerSettings
) -> list[Record]:
    """Checks what the resource would have, and writes only what differs."""
    old = image.configs.get(resource, {})
    changed: dict[str, str | None] = dict.fromkeys(key for key in old if key not in new)
    changed |= {key: value for key, value in new.items() if old.get(key) != value}
    if resource.type is ResourceType.TOPIC:
        _validate_topic(image, new, settings)
    else:
        _validate_broker({key: new[key] for key in changed if key in new}, resource)
    return [ConfigChanged(resource, key, value) for key, value in changed.items()]


def _validate_topic(
    image: ClusterImage, new: Mapping[str, str], settings: ControllerSettings
) -> None:
    try:
        validate_topic(new, base_config(image.layers(-1, settings.static_configs)))
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from error


def _validate_broker(new: Mapping[str, str], resource: Resource) -> None:
    try:
        validate_dynamic(new, cluster_default=resource.name == "")
    except ConfigError as error:
        # Kafka answers a broker's bad value so, and a topic's with INVALID_CONFIG.
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from error


def _as_given(request: ResourceConfigs) -> dict[str, str]:
    _refuse_duplicates(key for key, _ in request.configs)
    return {key: _not_null(key, value) for key, value in request.configs}


def _after_ops(
    image: ClusterImage, resource: Resource, ops: tuple[ConfigOp, ...]
) -> dict[str, str]:
    _refuse_duplicates(op.key for op in ops)
    configs = dict(image.configs.get(resource, {}))
    for op in ops:
        if op.op == AlterOp.SET:
            configs[op.key] = _not_null(op.key, op.value)
        elif op.op == AlterOp.DELETE:
            configs.pop(op.key, None)
        elif op.op in {AlterOp.APPEND, AlterOp.SUBTRACT}:
            configs[op.key] = _edited(resource, op, configs.get(op.key))
        else:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown operation type {op.op}.")
    return configs


def _edited(resource: Resource, op: ConfigOp, text: str | None) -> str:
    """A list with items added or taken away, starting from the default where nothing is set."""
    keys = TOPIC_KEYS if resource.type is ResourceType.TOPIC else BROKER_KEYS
    key: ConfigKey | None = keys.get(op.key)
    if key is None or key.type is not ConfigType.LIST:
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"Can't {AlterOp(op.op).name} to key {op.key} because its type is not LIST.",
        )
    start = key.format(key.default) if text is None else text
    have = [part.strip() for part in (start or "").split(",") if part.strip()]
    items = [part.strip() for part in _not_null(op.key, op.value).split(",") if part.strip()]
    if op.op == AlterOp.SUBTRACT:
        return ",".join(item for item in have if item not in items)
    return ",".join(dict.fromkeys((*have, *items)))


def _refuse_duplicates(keys: Iterable[str]) -> None:
    if any(count > 1 for count in Counter(keys).values()):
        raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def _not_null(key: str, value: str | None) -> str:
    if value is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {key}")
    return value
