"""The metadata log's members, changed step by step; each step finds what an earlier run did."""

import time

import click

from chronik.cli._balance import NoPlaceError, evacuated
from chronik.cli._cluster_state import ClusterState, look
from chronik.cli._moving import move
from chronik.cli._output import note
from chronik.cli._wire import connected, refused
from chronik.model.errors import ErrorCode
from chronik.model.names import METADATA_TOPIC
from chronik.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from chronik.wire.messages.end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    ReplicaInfo,
    RequestPartitionData,
    RequestTopicData,
)
from chronik.wire.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from chronik.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

ATTEMPTS = 30
POLL_S = 0.5
ADD_TIMEOUT_MS = 5_000
_AGAIN = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.VOTER_NOT_FOUND,
    }
)
"""Answers that a moment may change: an election, or a node that still starts."""


def transfer(bootstrap: str, node: int) -> str:
    """Lets a voter lead."""
    for _ in range(ATTEMPTS):
        state = look(bootstrap)
        if state.leader == node:
            return f"Node {node} leads the metadata log in term {state.term}"
        if state.leader >= 0 and node not in state.voters:
            raise click.ClickException(f"node {node} is no voter; these are: {_list(state.voters)}")
        if state.leader >= 0:
            if node not in state.live:
                raise click.ClickException(f"node {node} is down: it cannot lead")
            _ask_transfer(bootstrap, state, node)
        time.sleep(POLL_S / 5)
    raise click.ClickException(f"node {node} did not take over; 'chronik cluster status' says why")


def _ask_transfer(bootstrap: str, state: ClusterState, node: int) -> None:
    partition = RequestPartitionData(
        partition_index=0,
        leader_id=state.leader,
        leader_epoch=state.term,
        preferred_candidates=[ReplicaInfo(candidate_id=node)],
    )
    topic = RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    request = EndQuorumEpochRequest(cluster_id=state.cluster_id, topics=[topic])
    with connected(bootstrap) as connection:
        answer = connection.ask(request, EndQuorumEpochResponse)
    codes = [one.error_code for found in answer.topics for one in found.partitions]
    for code in [answer.error_code, *codes]:
        if code != ErrorCode.NONE and code not in _AGAIN:
            raise refused(code, None, f"node {node} cannot lead")


def add(bootstrap: str, node: int, timeout_s: float) -> str:
    """Gives a vote to a node that has joined."""
    deadline = time.monotonic() + timeout_s  # noqa: TID251 - no event loop here
    waited = False
    while True:
        state = look(bootstrap)
        if node in state.voters:
            return (
                f"Node {node} is a voter: {_list(state.voters)} are. Give it its share of the "
                "replicas with 'chronik cluster rebalance --replicas'"
            )
        request = AddRaftVoterRequest(
            cluster_id=state.cluster_id, timeout_ms=ADD_TIMEOUT_MS, voter_id=node
        )
        with connected(bootstrap) as connection:
            answer = connection.ask(request, AddRaftVoterResponse)
        code = answer.error_code
        if code not in {ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER}:
            if code not in _AGAIN or time.monotonic() > deadline:  # noqa: TID251
                raise refused(code, answer.error_message, f"node {node} has no vote")
            if not waited:
                note(f"Waiting: {answer.error_message}")
                waited = True
            time.sleep(POLL_S)


def remove(bootstrap: str, node: int, *, shrink: bool, parallel: int, timeout_s: float) -> str:
    """Replicas, then the vote, then the registration."""
    state = look(bootstrap)
    if node not in (*state.brokers, *state.voters, *state.learners):
        raise click.ClickException(f"there is no node {node}; these are: {_list(state.brokers)}")
    others = [one for one in state.live if one != node]
    if not others:
        raise click.ClickException(f"node {node} is the last one that runs")
    # The one that goes may be the one that is asked.
    bootstrap = ",".join(f"{state.brokers[one].host}:{state.brokers[one].port}" for one in others)
    _evacuate(bootstrap, node, shrink=shrink, parallel=parallel)
    _remove_vote(bootstrap, node)
    _unregister(bootstrap, node, timeout_s)
    return f"Node {node} is out of the cluster; its data directory may be deleted"


def _evacuate(bootstrap: str, node: int, *, shrink: bool, parallel: int) -> None:
    """New partitions may be put on the node meanwhile, so it looks again until it is empty."""
    while True:
        state = look(bootstrap)
        held = [key for key, one in state.partitions.items() if node in one.replicas]
        if not held:
            return
        racks = {one: state.brokers[one].rack for one in state.live}
        try:
            plan = evacuated(state.targets, racks, node, shrink=shrink)
        except NoPlaceError as error:
            raise click.ClickException(f"{error}, or accept fewer with --shrink") from error
        note(f"Node {node} holds {len(held)} replicas: moving them away")
        move(bootstrap, plan, parallel)
        if not plan:
            time.sleep(POLL_S)  # the last ones are on their way already


def _remove_vote(bootstrap: str, node: int) -> None:
    for _ in range(ATTEMPTS):
        state = look(bootstrap)
        if state.leader >= 0 and node not in (*state.voters, *state.learners):
            return
        if state.leader == node:
            heir = next((one for one in state.voters if one != node and one in state.live), None)
            if heir is None:
                raise click.ClickException(f"node {node} is the only voter that runs")
            note(transfer(bootstrap, heir))
        elif state.leader >= 0:
            request = RemoveRaftVoterRequest(cluster_id=state.cluster_id, voter_id=node)
            with connected(bootstrap) as connection:
                answer = connection.ask(request, RemoveRaftVoterResponse)
            if answer.error_code and answer.error_code not in _AGAIN:
                raise refused(
                    answer.error_code, answer.error_message, f"node {node} keeps its vote"
                )
        time.sleep(POLL_S / 5)
    raise click.ClickException(f"node {node} still has a vote; run the command again")


def _unregister(bootstrap: str, node: int, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s  # noqa: TID251 - no event loop here
    told = False
    while True:
        state = look(bootstrap)
        broker = state.brokers.get(node)
        if broker is None:
            return
        if broker.is_fenced:
            request = UnregisterBrokerRequest(broker_id=node)
            with connected(bootstrap) as connection:
                answer = connection.ask(request, UnregisterBrokerResponse)
            if answer.error_code not in {ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED}:
                raise refused(answer.error_code, answer.error_message, "it stays registered")
            continue
        if time.monotonic() > deadline:  # noqa: TID251
            raise click.ClickException(f"node {node} still runs: stop it, then run this again")
        if not told:
            note(f"Node {node} holds nothing and has no vote. Stop it now; waiting ...")
            told = True
        time.sleep(POLL_S)


def _list(nodes: object) -> str:
    assert isinstance(nodes, dict)
    return ", ".join(map(str, sorted(nodes)))
