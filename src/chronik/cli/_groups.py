"""What `chronik group` knows about a group: its members, its offsets, and how far it is behind."""

import difflib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import click

from chronik.cli._client import (
    ANSWER_SECONDS_MAX,
    SUGGESTIONS_MAX,
    Cluster,
    did_you_mean,
    result,
    results,
)
from chronik.cli._offsets import Partition, ranges
from chronik.cli._output import count_text, print_table

DEAD = "Dead"
"""The state of a group that nobody knows."""


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: list[Partition]


@dataclass(frozen=True, slots=True)
class LagView:
    """One partition of a group; what could not be learned is None."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    """Records to come; None where nothing was committed yet."""
    client_id: str | None
    host: str | None
    member_id: str | None


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group."""

    group: str
    state: str
    type: str
    assignor: str
    coordinator: int | None
    members: list[MemberView]
    partitions: list[LagView]

    @property
    def total_lag(self) -> int:
        """Records that the group has still to read, where that is known."""
        return sum(one.lag for one in self.partitions if one.lag is not None)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        members = [
            {
                **asdict(member),
                "assignment": [
                    {"topic": topic, "partition": number} for topic, number in member.assignment
                ],
            }
            for member in self.members
        ]
        return {**asdict(self), "members": members, "total_lag": self.total_lag}


def text_of(word: Any) -> str:
    """librdkafka's PREPARING_REBALANCING in Kafka's own spelling."""
    parts = (part.capitalize() for part in word.name.split("_"))
    return "".join(parts).replace("Rebalancing", "Rebalance")


def group_names(cluster: Cluster) -> list[str]:
    """Every group there is."""
    return sorted(one.group_id for one in list_groups(cluster))


def list_groups(cluster: Cluster, **filters: Any) -> list[Any]:
    """The groups of every broker; one that does not answer fails the list."""
    found = _listed(cluster, **filters)
    if found.errors:
        raise found.errors[0]
    return sorted(found.valid, key=lambda one: str(one.group_id))


def _listed(cluster: Cluster, **filters: Any) -> Any:
    future = cluster.admin.list_consumer_groups(request_timeout=ANSWER_SECONDS_MAX, **filters)
    return future.result(timeout=ANSWER_SECONDS_MAX + 5)


def unknown_group(cluster: Cluster, name: str) -> click.ClickException:
    """The error for a group that is not there, with the names that come close."""
    close = difflib.get_close_matches(name, group_names(cluster), SUGGESTIONS_MAX)
    advice = did_you_mean(close) or "'chronik group list' shows those that do"
    return click.ClickException(f"group '{name}' does not exist. {advice[0].upper()}{advice[1:]}")


# -- gathering


def describe_groups(cluster: Cluster, names: Iterable[str]) -> list[GroupView]:
    """The groups in the order of the names; an unknown one has state Dead."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return []
    answers = results(
        cluster.admin.describe_consumer_groups(wanted, request_timeout=ANSWER_SECONDS_MAX)
    )
    # The description has the type only in newer libraries; a broker that is away costs its groups'.
    types = {one.group_id: text_of(one.type).lower() for one in _listed(cluster).valid}
    return [_view(cluster, name, types.get(name, ""), answers[name]) for name in wanted]


def _view(cluster: Cluster, name: str, type_: str, found: Any) -> GroupView:
    from confluent_kafka import KafkaError, KafkaException

    if isinstance(found, KafkaError):
        if found.code() == KafkaError.GROUP_ID_NOT_FOUND:
            return GroupView(name, DEAD, "", "", None, [], [])
        raise KafkaException(found)
    members = [_member(one) for one in found.members]
    return GroupView(
        group=name,
        state=text_of(found.state),
        type=type_,
        assignor=found.partition_assignor,
        coordinator=None if found.coordinator is None else found.coordinator.id,
        members=members,
        partitions=_lags(cluster, committed_offsets(cluster, name), members),
    )


def _member(found: Any) -> MemberView:
    parts = found.assignment.topic_partitions if found.assignment else []
    return MemberView(
        member_id=found.member_id,
        group_instance_id=found.group_instance_id,
        client_id=found.client_id,
        host=found.host.removeprefix("/"),
        assignment=sorted((part.topic, part.partition) for part in parts),
    )


def committed_offsets(cluster: Cluster, group: str) -> dict[Partition, int]:
    """What the group has committed, in every topic."""
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

    asked = [ConsumerGroupTopicPartitions(group)]
    futures = cluster.admin.list_consumer_group_offsets(asked, request_timeout=ANSWER_SECONDS_MAX)
    found: dict[Partition, int] = {}
    for part in result(futures).topic_partitions:
        if part.error:
            raise KafkaException(part.error)
        if part.offset >= 0:
            found[part.topic, part.partition] = part.offset
    return found


def _lags(
    cluster: Cluster, committed: dict[Partition, int], members: list[MemberView]
) -> list[LagView]:
    owners = {part: member for member in members for part in member.assignment}
    wanted = sorted(committed.keys() | owners.keys())
    topics = cluster.metadata().topics
    alive = [part for part in wanted if part[0] in topics and part[1] in topics[part[0]].partitions]
    held = ranges(cluster.admin, alive)
    lags = []
    for part in wanted:
        owner = owners.get(part)
        offset = committed.get(part)
        end = held[part].end if part in held else None
        lags.append(
            LagView(
                *part,
                committed=offset,
                end=end,
                lag=None if offset is None or end is None else max(0, end - offset),
                client_id=owner.client_id if owner else None,
                host=owner.host if owner else None,
                member_id=owner.member_id if owner else None,
            )
        )
    return lags


# -- printing


def show_group(group: GroupView) -> None:
    """A headline, a table of the partitions, and the members that have none."""
    parts = [group.state, *filter(None, [group.type]), count_text(len(group.members), "member")]
    if group.assignor:
        parts.append(f"assignor {group.assignor}")
    parts.append(f"total lag {group.total_lag:,}")
    click.echo(f"{click.style(group.group, bold=True)}: {', '.join(parts)}")
    if group.partitions:
        print_table(
            ("topic", "partition", "committed", "end", "lag", "client", "host", "member"),
            [_row(one) for one in group.partitions],
            numbers=("partition", "committed", "end", "lag"),
        )
    for member in group.members:
        if not member.assignment:
            click.echo(f"no partitions: {member.client_id} at {member.host} ({member.member_id})")


def _row(one: LagView) -> tuple[object, ...]:
    place = (one.topic, one.partition, one.committed, one.end, one.lag)
    return (*place, one.client_id, one.host, one.member_id)
