"""Plays the scenario files: one line is one command, the answer is what the cluster did.

nodes 1 2 3 [learners=4] [option=value ...]    a cluster; options are those of RaftConfig
start 4                    an empty node, not a member yet       restart 2   from its disk
campaign 1 | tick 1 5 | propose 1 data | read 1 name | transfer 1 2
conf-change 1 v2 l3 r4 [implicit|explicit]     no member: leave the joint configuration
process 1                  one Ready          deliver [1->2 ...]   what is on the wire
settle [quiet]             both until nothing happens any more
drop 1->2                  what is on the wire      isolate 3 | heal
snapshot 1 [keep=2]        take one and compact     unreachable 1 2
status 1 | log 1 | members 1 | roles | applied
"""

from collections.abc import Callable, Iterable

from tests.raft.cluster import Cluster

from chronik.raft.core import Ready
from chronik.raft.messages import (
    AppendEntries,
    AppendResponse,
    ConfChange,
    ConfChangeTransition,
    ConfChangeType,
    ConfState,
    Entry,
    EntryType,
    Heartbeat,
    InstallSnapshot,
    MemberChange,
    Message,
    NodeId,
    RequestVote,
    VoteResponse,
)
from chronik.raft.state import ProposalDropped

CHANGES = {
    "v": ConfChangeType.ADD_VOTER,
    "l": ConfChangeType.ADD_LEARNER,
    "r": ConfChangeType.REMOVE,
}
TRANSITIONS = {
    "implicit": ConfChangeTransition.JOINT_IMPLICIT,
    "explicit": ConfChangeTransition.JOINT_EXPLICIT,
}
SWITCHES: dict[str, object] = {"on": True, "off": False}


def play() -> Callable[[str], str]:
    """A fresh world."""
    return Player().play


class Player:
    """One cluster, moved by commands."""

    def __init__(self) -> None:
        self.cluster = Cluster(())

    def play(self, block: str) -> str:
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        answers = [answer for line in lines for answer in self.command(line)]
        return "\n".join(answers) or "ok"

    def command(self, line: str) -> Iterable[str]:
        name, *words = line.split()
        options = dict(word.split("=") for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        try:
            return list(getattr(self, "do_" + name.replace("-", "_"))(plain, options) or [])
        except ProposalDropped as dropped:
            return [f"dropped: {dropped}"]

    def do_nodes(self, words: list[str], options: dict[str, str]) -> None:
        learners = [int(word) for word in options.pop("learners", "").split(",") if word]
        values = {name: SWITCHES.get(value, value) for name, value in options.items()}
        numbers = {
            name: int(value) if isinstance(value, str) else value for name, value in values.items()
        }
        self.cluster = Cluster(map(int, words), learners, **numbers)

    def do_start(self, words: list[str], _: dict[str, str]) -> None:
        self.cluster.add(int(words[0]))

    def do_restart(self, words: list[str], _: dict[str, str]) -> None:
        self.cluster.members[int(words[0])].restart()

    def do_campaign(self, words: list[str], _: dict[str, str]) -> list[str]:
        return [] if self.cluster[int(words[0])].campaign() else ["may not campaign"]

    def do_tick(self, words: list[str], _: dict[str, str]) -> None:
        for _tick in range(int(words[1]) if len(words) > 1 else 1):
            self.cluster[int(words[0])].tick()

    def do_propose(self, words: list[str], _: dict[str, str]) -> list[str]:
        position = self.cluster[int(words[0])].propose(words[1].encode())
        return ["forwarded"] if position is None else []

    def do_conf_change(self, words: list[str], _: dict[str, str]) -> None:
        node, *rest = words
        transition = ConfChangeTransition.AUTO
        if rest and rest[-1] in TRANSITIONS:
            transition = TRANSITIONS[rest.pop()]
        changes = tuple(MemberChange(CHANGES[word[0]], int(word[1:])) for word in rest)
        self.cluster[int(node)].propose_conf_change(ConfChange(changes, transition))

    def do_read(self, words: list[str], _: dict[str, str]) -> None:
        self.cluster[int(words[0])].read_index(words[1].encode())

    def do_transfer(self, words: list[str], _: dict[str, str]) -> None:
        self.cluster[int(words[0])].transfer_leadership(int(words[1]))

    def do_unreachable(self, words: list[str], _: dict[str, str]) -> None:
        self.cluster[int(words[0])].report_unreachable(int(words[1]))

    def do_process(self, words: list[str], _: dict[str, str]) -> list[str]:
        node = int(words[0])
        if not self.cluster[node].has_ready():
            return ["nothing to do"]
        return describe_ready(node, self.cluster.process(node))

    def do_deliver(self, words: list[str], _: dict[str, str]) -> list[str]:
        return [describe(message) for message in self.cluster.deliver(chosen(words))]

    def do_drop(self, words: list[str], _: dict[str, str]) -> list[str]:
        wanted = chosen(words)
        dropped = [message for message in self.cluster.wire if wanted(message)]
        self.cluster.wire = [message for message in self.cluster.wire if not wanted(message)]
        return [f"lost {describe(message)}" for message in dropped]

    def do_settle(self, words: list[str], _: dict[str, str]) -> list[str]:
        lines: list[str] = []
        for event in self.cluster.turns():
            lines += describe_ready(*event) if isinstance(event, tuple) else [describe(event)]
        return [] if words == ["quiet"] else lines

    def do_isolate(self, words: list[str], _: dict[str, str]) -> None:
        self.cluster.isolate(*map(int, words))

    def do_heal(self, _words: list[str], _: dict[str, str]) -> None:
        self.cluster.heal()

    def do_snapshot(self, words: list[str], options: dict[str, str]) -> list[str]:
        member = self.cluster.members[int(words[0])]
        snapshot = member.take_snapshot(int(options.get("keep", "0")))
        return [f"snapshot of {snapshot.index}, log starts at {member.node.state.log.first_index}"]

    def do_status(self, words: list[str], _: dict[str, str]) -> list[str]:
        progress = self.cluster[int(words[0])].state.progress
        return [
            f"{node}: {one.state.value} match={one.match} next={one.next}"
            + (" learner" if one.is_learner else "")
            + (" paused" if one.is_paused else "")
            + (f" inflight={len(one.inflights)}" if len(one.inflights) else "")
            for node, one in sorted(progress.items())
        ]

    def do_log(self, words: list[str], _: dict[str, str]) -> list[str]:
        log = self.cluster[int(words[0])].state.log
        head = f"base={log.base_term}/{log.base_index} commit={log.committed} applied={log.applied}"
        return [head, *map(describe_entry, log.entries)]

    def do_members(self, words: list[str], _: dict[str, str]) -> list[str]:
        return [describe_members(self.cluster[int(words[0])].conf_state)]

    def do_roles(self, _words: list[str], _: dict[str, str]) -> list[str]:
        nodes = [(node, self.cluster[node]) for node in sorted(self.cluster.members)]
        return [f"{number}: {node.role.value} term={node.term} leader={node.leader}"
                for number, node in nodes]  # fmt: skip

    def do_applied(self, _words: list[str], _: dict[str, str]) -> list[str]:
        members = sorted(self.cluster.members.items())
        return [
            f"{node}: {b' '.join(member.applied).decode()}".rstrip() for node, member in members
        ]


def chosen(words: list[str]) -> Callable[[Message], bool]:
    """Which messages `1->2` and `->2` mean; no word means all."""
    ways = [tuple(word.split("->")) for word in words]
    return lambda message: (
        not ways
        or any(
            sender in ("", str(message.sender)) and to in ("", str(message.to))
            for sender, to in ways
        )
    )


def describe_ready(node: NodeId, ready: Ready) -> list[str]:
    lines = []
    if ready.soft_state is not None:
        lines.append(f"is {ready.soft_state.role.value}, leader {ready.soft_state.leader}")
    if ready.hard_state is not None:
        state = ready.hard_state
        lines.append(f"writes term={state.term} vote={state.vote} commit={state.commit}")
    if ready.snapshot is not None:
        lines.append(f"writes and applies snapshot {ready.snapshot.term}/{ready.snapshot.index}")
    if ready.entries:
        lines.append("writes " + " ".join(map(describe_entry, ready.entries)))
    if ready.committed_entries:
        lines.append("applies " + " ".join(map(describe_entry, ready.committed_entries)))
    lines += [f"may read {read.context.decode()} at {read.index}" for read in ready.read_states]
    return [f"{node} {line}" for line in lines]


def describe_entry(entry: Entry) -> str:
    text = "conf-change" if entry.type is EntryType.CONF_CHANGE else entry.data.decode()
    return f"{entry.term}/{entry.index}:{text}" if text else f"{entry.term}/{entry.index}"


def describe_members(state: ConfState) -> str:
    lists = {
        "voters": state.voters,
        "outgoing": state.voters_outgoing,
        "learners": state.learners,
        "learners_next": state.learners_next,
    }
    text = " ".join(f"{name}={','.join(map(str, ids))}" for name, ids in lists.items() if ids)
    return (text or "knows no members") + (" auto-leave" if state.auto_leave else "")


def describe(message: Message) -> str:
    """One line per message: who to whom, what, and the fields that matter."""
    name = type(message).__name__
    if isinstance(message, RequestVote | VoteResponse) and message.pre_vote:
        name = "Pre" + name
    fields = [f"{message.sender}->{message.to} {name}"]
    if hasattr(message, "term"):
        fields.append(f"term={message.term}")
    return " ".join(fields + details(message))


def details(message: Message) -> list[str]:
    if isinstance(message, RequestVote):
        return [f"last={message.last_term}/{message.last_index}"]
    if isinstance(message, VoteResponse):
        return ["granted" if message.granted else "refused"]
    return details_of_replication(message)


def details_of_replication(message: Message) -> list[str]:
    if isinstance(message, AppendEntries):
        at = f"prev={message.prev_term}/{message.prev_index} commit={message.commit}"
        return [at, *map(describe_entry, message.entries)]
    if isinstance(message, AppendResponse):
        if not message.rejected:
            return [f"has={message.index}"]
        return [f"refused={message.index} hint={message.hint_term}/{message.hint_index}"]
    if isinstance(message, Heartbeat):
        return [f"commit={message.commit}"]
    if isinstance(message, InstallSnapshot):
        return [f"snapshot={message.snapshot.term}/{message.snapshot.index}"]
    return []
