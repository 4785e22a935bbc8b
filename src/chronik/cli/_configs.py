"""Configs of topics and brokers: read, changed, and explained by Chronik's own tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import click

from chronik.cli._client import (
    ANSWER_SECONDS_MAX,
    Cluster,
    admin_module,
    close_names,
    did_you_mean,
    error_text,
    results,
)

ResourceName = tuple[Literal["topic", "broker"], str]

_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "broker, dynamic",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "cluster, dynamic",
    "STATIC_BROKER_CONFIG": "broker, static",
    "DEFAULT_CONFIG": "default",
}


@dataclass(frozen=True, slots=True)
class ConfigView:
    """One effective config."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool

    @property
    def changed(self) -> bool:
        """Somebody set it."""
        return self.source != "default"


def describe_configs(
    cluster: Cluster, resources: Iterable[ResourceName]
) -> dict[ResourceName, list[ConfigView]]:
    """The effective configs of each resource, sorted by name."""
    wanted = {_resource(name): name for name in resources}
    if not wanted:
        return {}
    futures = cluster.admin.describe_configs(list(wanted), request_timeout=ANSWER_SECONDS_MAX)
    answers: dict[Any, Any] = results(futures)
    found = {}
    for resource, answer in answers.items():
        name = wanted[resource]
        if not isinstance(answer, dict):
            raise _failure(cluster, name, answer)
        found[name] = [_view(answer[key]) for key in sorted(answer)]
    return found


def alter_configs(
    cluster: Cluster, name: ResourceName, values: Mapping[str, str], deleted: Iterable[str]
) -> None:
    """Sets and deletes configs in one request; the others stay as they are (KIP-339)."""
    deleted = list(deleted)
    _require_known(cluster, name, deleted)
    entry, operation = admin_module().ConfigEntry, admin_module().AlterConfigOpType
    entries = [
        entry(key, value, incremental_operation=operation.SET) for key, value in values.items()
    ] + [entry(key, None, incremental_operation=operation.DELETE) for key in deleted]
    resource = _resource(name, entries)
    futures = cluster.admin.incremental_alter_configs(
        [resource], request_timeout=ANSWER_SECONDS_MAX
    )
    for error in results(futures).values():
        if error is not None:
            raise _failure(cluster, name, error, [*values, *deleted])


def _require_known(cluster: Cluster, name: ResourceName, keys: list[str]) -> None:
    """A broker takes the deletion of any key, which would hide a typing mistake."""
    known = [view.name for view in describe_configs(cluster, [name])[name]] if keys else []
    if missing := [key for key in keys if key not in known]:
        question = did_you_mean(match for key in missing for match in close_names(key, known))
        advice = question.capitalize() or "'chronik config describe' shows all"
        raise click.ClickException(
            f"{name[0]} '{name[1]}' has no config {', '.join(missing)}. {advice}"
        )


def documentation(kind: str, key: str) -> str | None:
    """What a key means, where Chronik knows it."""
    found = _table(kind).get(key)
    return None if found is None else str(found.doc)


def _table(kind: str) -> Mapping[str, Any]:
    from chronik.model.broker_configs import BROKER_KEYS
    from chronik.model.topic_keys import TOPIC_KEYS

    return TOPIC_KEYS if kind == "topic" else BROKER_KEYS


def _resource(name: ResourceName, entries: list[Any] | None = None) -> Any:
    types = admin_module().ResourceType
    kind = types.TOPIC if name[0] == "topic" else types.BROKER
    return admin_module().ConfigResource(kind, name[1], incremental_configs=entries)


def _view(entry: Any) -> ConfigView:
    # librdkafka gives the number of the source, the number's name is in its own enumeration.
    source = admin_module().ConfigSource(entry.source).name
    return ConfigView(
        entry.name,
        entry.value,
        _SOURCES.get(source, source.lower()),
        entry.is_read_only,
        entry.is_sensitive,
    )


def _failure(
    cluster: Cluster, name: ResourceName, error: Any, keys: Iterable[str] = ()
) -> click.ClickException:
    from confluent_kafka import KafkaError

    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and name[0] == "topic":
        return cluster.unknown_topic(name[1])
    text = f"{name[0]} '{name[1]}': {error_text(error)}"
    table = _table(name[0])
    unknown = [key for key in keys if key not in table]
    close = [match for key in unknown for match in close_names(key, table)]
    question = did_you_mean(close)
    return click.ClickException(f"{text}. {question.capitalize()}" if question else text)
