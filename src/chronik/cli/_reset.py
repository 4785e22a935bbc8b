"""How `chronik group reset-offsets` finds where to go, and goes there."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import click

from chronik.cli._client import ANSWER_SECONDS_MAX, Cluster, error_text, result
from chronik.cli._groups import DEAD, GroupView, committed_offsets, describe_groups
from chronik.cli._offsets import Partition, Position, Range, ranges, resolve
from chronik.cli._output import note, print_table

EMPTY = "Empty"
NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class Move:
    """One partition, from its committed offset to another."""

    topic: str
    partition: int
    current: int | None
    new: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        place = {"topic": self.topic, "partition": self.partition}
        return {**place, "from": self.current, "to": self.new}


def plan(
    cluster: Cluster,
    group: str,
    topics: Iterable[str],
    position: Position | None,
    shift: int,
    *,
    execute: bool,
) -> list[Move]:
    """What would move; `position` None shifts what is committed. A group with members stays."""
    (view,) = describe_groups(cluster, [group])
    _require_no_members(view, execute=execute)
    committed = {} if view.state == DEAD else committed_offsets(cluster, group)
    held = ranges(cluster.admin, _partitions(cluster, group, list(topics), committed))
    if position is not None:
        targets = resolve(cluster.admin, position, held)
    else:
        targets = _shifted(group, committed, held, shift)
    return [Move(*part, committed.get(part), targets[part]) for part in sorted(targets)]


def _require_no_members(view: GroupView, *, execute: bool) -> None:
    if view.state in {EMPTY, DEAD}:
        return
    members = [f"{one.client_id} at {one.host}" for one in view.members]
    named = ", ".join(members[:NAMED_MAX]) + (", ..." if len(members) > NAMED_MAX else "")
    text = (
        f"group '{view.group}' is {view.state} and its members ({named or 'still joining'}) would "
        "overwrite the new offsets. Stop them, wait until 'chronik group describe "
        f"{view.group}' says Empty (a killed one is counted until its session times out), and "
        "reset then"
    )
    if execute:
        raise click.ClickException(text)
    note(f"With --execute this would be refused: {text}.")


def _partitions(
    cluster: Cluster, group: str, topics: list[str], committed: dict[Partition, int]
) -> list[Partition]:
    known = cluster.metadata().topics
    for name in topics:
        if name not in known:
            raise cluster.unknown_topic(name)
    if not topics and not committed:
        raise click.ClickException(
            f"group '{group}' has committed no offsets: name topics with --topic"
        )
    wanted = topics or sorted({topic for topic, _ in committed if topic in known})
    return [(topic, number) for topic in wanted for number in sorted(known[topic].partitions)]


def _shifted(
    group: str, committed: dict[Partition, int], held: dict[Partition, Range], shift: int
) -> dict[Partition, int]:
    found = {
        part: min(max(committed[part] + shift, has.start), has.end)
        for part, has in held.items()
        if part in committed
    }
    if not found:
        raise click.ClickException(
            f"group '{group}' has committed no offsets there, so there is nothing to shift: "
            "use --to"
        )
    for topic, number in held.keys() - found.keys():
        note(f"Left out: nothing is committed for {topic} partition {number}.")
    return found


def show_plan(moves: list[Move]) -> None:
    """A table of from and to."""
    print_table(
        ("topic", "partition", "from", "to"),
        [(one.topic, one.partition, one.current, one.new) for one in moves],
        numbers=("partition", "from", "to"),
    )


def execute_plan(cluster: Cluster, group: str, moves: list[Move]) -> None:
    """Commits the new offsets."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    parts = [TopicPartition(one.topic, one.partition, one.new) for one in moves]
    asked = [ConsumerGroupTopicPartitions(group, parts)]
    futures = cluster.admin.alter_consumer_group_offsets(asked, request_timeout=ANSWER_SECONDS_MAX)
    failed = [part for part in result(futures).topic_partitions if part.error]
    if failed:
        reasons = "; ".join(
            f"{p.topic} partition {p.partition}: {error_text(p.error)}" for p in failed
        )
        raise click.ClickException(f"not every offset was reset: {reasons}")
