"""How the state of a cluster is printed."""

from typing import Any

import click

from chronik.cli._cluster_state import ClusterState, Problem
from chronik.cli._output import count_text, print_table

_COLOURS = {"warn": "yellow", "alarm": "red"}


def show(state: ClusterState, problems: list[Problem]) -> None:
    """Tables for people; plain columns where nobody looks."""
    leader = f"node {state.leader}, term {state.term}" if state.leader >= 0 else "none"
    click.echo(f"Cluster {state.cluster_id}, controller: {leader}\n")
    _show_brokers(state)
    click.echo()
    _show_partitions(state)
    click.echo()
    for node in state.learners:
        click.echo(f"Node {node} has no vote; 'chronik cluster add-node {node}' gives it one")
    for one in problems:
        click.echo(click.style(f"{one.level.upper()}: {one.text}", fg=_COLOURS[one.level]))
    if not problems:
        click.echo(
            click.style("OK: every node, voter and replica is where it should be", fg="green")
        )


def _show_brokers(state: ClusterState) -> None:
    nodes = sorted({*state.brokers, *state.voters, *state.learners})
    rows = [_row(state, node) for node in nodes]
    columns = ["node", "address", "rack", "state", "metadata", "lag", "leads", "replicas"]
    bad = {i for i, node in enumerate(nodes) if _state(state, node) != "up"}
    print_table(columns, rows, numbers=("lag", "leads", "replicas"), red=bad.__contains__)


def _row(state: ClusterState, node: int) -> tuple[object, ...]:
    broker = state.brokers.get(node)
    address = f"{broker.host}:{broker.port}" if broker else None
    leads, replicas = (broker.leaders, broker.replicas) if broker else (None, None)
    rack = broker.rack if broker else None
    shown = (str(node), address, rack, _state(state, node), _role(state, node), state.lag(node))
    return (*shown, leads, replicas)


def _state(state: ClusterState, node: int) -> str:
    broker = state.brokers.get(node)
    if broker is None:
        return "not registered"
    if broker.is_fenced:
        return "fenced"
    return "unreachable" if broker.is_reachable is False else "up"


def _role(state: ClusterState, node: int) -> str:
    if node == state.leader:
        return "leader"
    if node in state.voters:
        return "voter"
    return "learner" if node in state.learners else "none"


def _show_partitions(state: ClusterState) -> None:
    counts = partition_counts(state)
    click.echo(
        f"{count_text(state.topics, 'topic')}, {count_text(counts['total'], 'partition')}: "
        f"{counts['under_replicated']} under-replicated, {counts['without_leader']} without "
        f"leader, {counts['offline_replicas']} replicas offline, "
        f"{counts['not_preferred_leader']} not led by the preferred replica, "
        f"{counts['moving']} moving; log end at most {counts['ahead_max']} ahead of the watermark"
    )


def partition_counts(state: ClusterState) -> dict[str, int]:
    """The partitions in numbers."""
    views = state.partitions.values()
    return {
        "total": len(views),
        "under_replicated": sum(one.is_under_replicated for one in views),
        "without_leader": sum(one.leader < 0 for one in views),
        "offline_replicas": sum(
            replica not in state.live for one in views for replica in one.replicas
        ),
        "not_preferred_leader": sum(one.leader != one.target[0] for one in views),
        "moving": len(state.moving),
        "ahead_max": max((one.ahead or 0 for one in views), default=0),
    }


def as_dict(state: ClusterState) -> dict[str, Any]:
    """The same for programs."""
    return {
        "cluster_id": state.cluster_id,
        "controller": state.leader,
        "term": state.term,
        "brokers": [
            {
                "id": one.id,
                "host": one.host,
                "port": one.port,
                "rack": one.rack,
                "state": _state(state, one.id),
                "is_controller": one.id == state.leader,
                "leaders": one.leaders,
                "replicas": one.replicas,
            }
            for one in state.brokers.values()
        ],
        "quorum": {
            "voters": [{"id": one, "lag": state.lag(one)} for one in state.voters],
            "learners": [{"id": one, "lag": state.lag(one)} for one in state.learners],
            "committed": state.committed,
        },
        "topics": state.topics,
        "partitions": partition_counts(state),
    }
