"""Moves replicas and leaders, a few at a time, and watches them arrive.

Nothing is remembered here: what moves is in the cluster's metadata. A run that was interrupted is
taken up by the next one, which finds what has arrived, what is on its way, and what is left.
"""

import sys
import time
from collections.abc import Mapping

import click

from chronik.cli._cluster_state import ClusterState, Key, look
from chronik.cli._output import note
from chronik.cli._wire import connected, refused
from chronik.model.errors import ErrorCode
from chronik.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from chronik.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)

POLL_S = 0.2
PREFERRED = 0
UNCLEAN = 1
TIMEOUT_MS = 15_000
_HARMLESS = frozenset({ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED})


def move(bootstrap: str, plan: Mapping[Key, tuple[int, ...]], parallel: int) -> None:
    """Starts the moves of a plan, at most `parallel` under way; returns when nothing moves."""
    waiting = dict(plan)
    total, said = len({*plan, *look(bootstrap).moving}), -1
    while True:
        state = look(bootstrap)
        under_way = state.moving
        waiting = {key: to for key, to in waiting.items() if key in state.partitions}
        begin = dict(list(waiting.items())[: max(0, parallel - len(under_way))])
        if begin:
            _begin(bootstrap, begin)
            waiting = {key: to for key, to in waiting.items() if key not in begin}
        if not waiting and not begin and not under_way:
            _progress(total, total, last=True)
            return
        done = max(0, total - len({*waiting, *begin, *under_way}))
        if done != said:
            _progress(done, total)
            said = done
        time.sleep(POLL_S)


def _progress(done: int, total: int, *, last: bool = False) -> None:
    text = f"{done} of {total} partitions moved"
    if sys.stderr.isatty():
        click.echo(f"\r{text}", err=True, nl=last)
    else:
        note(text)


def _begin(bootstrap: str, moves: Mapping[Key, tuple[int, ...]]) -> None:
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, index), replicas in moves.items():
        one = ReassignablePartition(partition_index=index, replicas=list(replicas))
        topics.setdefault(topic, []).append(one)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS,
        topics=[ReassignableTopic(name=name, partitions=many) for name, many in topics.items()],
    )
    with connected(bootstrap) as node:
        answer = node.ask(request, AlterPartitionReassignmentsResponse)
    if answer.error_code:
        raise refused(answer.error_code, answer.error_message, "the cluster refuses the moves")
    for topic_answer in answer.responses:
        for found in topic_answer.partitions:
            if found.error_code not in {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
                where = f"{topic_answer.name}-{found.partition_index}"
                raise refused(found.error_code, found.error_message, f"{where} cannot move")


def elect_preferred(bootstrap: str) -> list[str]:
    """Lets the first replica of every partition lead; returns where that could not be."""
    return _elect(
        bootstrap,
        ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None, timeout_ms=TIMEOUT_MS),
    )


def elect_unclean(bootstrap: str, partitions: list[Key]) -> list[str]:
    """Lets any live replica lead where nobody does; returns where that could not be."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    named = [TopicPartitions(topic=one, partitions=many) for one, many in topics.items()]
    return _elect(
        bootstrap,
        ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=named, timeout_ms=TIMEOUT_MS),
    )


def _elect(bootstrap: str, request: ElectLeadersRequest) -> list[str]:
    with connected(bootstrap) as node:
        answer = node.ask(request, ElectLeadersResponse)
    if answer.error_code:
        raise refused(answer.error_code, None, "the cluster refuses the election")
    return [
        f"{topic.topic}-{one.partition_id}: {one.error_message or ErrorCode(one.error_code).name}"
        for topic in answer.replica_election_results
        for one in topic.partition_result
        if one.error_code not in _HARMLESS
    ]


def misled(state: ClusterState) -> list[Key]:
    """Partitions that another node leads than the preferred one."""
    return [key for key, one in state.partitions.items() if one.leader != one.target[0]]
