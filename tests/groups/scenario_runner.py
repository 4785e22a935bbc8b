"""Plays scenario files: a small language for clients of one coordinator. See `scenarios/README.md`.

Member ids are `<client or instance>-<n>`; a client remembers the id and the generation it was told.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.groups.driver import Driver
from tests.groups.show import show_record, show_response

from chronik.groups.commands import (
    Command,
    DeleteGroup,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    SyncGroup,
    TopicsDeleted,
)
from chronik.groups.config import GroupConfig
from chronik.groups.fields import FieldWriter
from chronik.groups.responses import JoinGroupResponse, Reply
from chronik.model.errors import ErrorCode

Words = list[str]
Options = dict[str, str]


def play() -> Callable[[str], str]:
    """A fresh world."""
    return World().play


def subscription(topics: str) -> bytes:
    """Consumer protocol metadata v0 for a comma-separated list of topics."""
    names = [name for name in topics.split(",") if name]
    out = FieldWriter(flexible=False)
    out.int16(0)
    out.array(len(names))
    for name in names:
        out.string(name)
    out.blob(b"")
    return out.bytes()


@dataclass
class Client:
    """What a client remembers."""

    name: str
    member_id: str = ""
    generation_id: int = -1


@dataclass
class World:
    """One coordinator, its log and its clients."""

    driver: Driver = field(
        default_factory=lambda: Driver(GroupConfig(initial_rebalance_delay_ms=0))
    )
    clients: dict[str, Client] = field(default_factory=dict)
    shown: int = 0

    def play(self, block: str) -> str:
        """Plays the commands of a block; says what was logged and answered."""
        lines: list[str] = []
        for line in block.splitlines():
            if line and not line.startswith("#"):
                self.run(line)
                lines += self.news()
        return "\n".join(lines) or "ok"

    def run(self, line: str) -> None:
        """One command line."""
        verb, *rest = line.split()
        options = dict(word.split("=", 1) for word in rest if "=" in word and "/" not in word)
        words = [word for word in rest if "=" not in word or "/" in word]
        if verb in _CONTROLS:
            _CONTROLS[verb](self, words, options)
            return
        command, reply_to = _COMMANDS[verb](self, words, options)
        self.driver.step(command, reply_to)

    def news(self) -> list[str]:
        """New records and replies, in that order."""
        writes = self.driver.committed_writes[self.shown :]
        self.shown = len(self.driver.committed_writes)
        records = [f"log: {show_record(record)}" for write in writes for record in write.records]
        return records + [self.show_reply(reply) for reply in self.driver.take_replies()]

    def show_reply(self, reply: Reply) -> str:
        """A reply; a client learns its id and generation from it."""
        response = reply.response
        client = self.clients.get(str(reply.reply_to))
        if client and isinstance(response, JoinGroupResponse):
            if response.member_id:
                client.member_id = response.member_id
            if response.error is ErrorCode.NONE:
                client.generation_id = response.generation_id
        return f"{reply.reply_to}: {show_response(response)}"

    def client(self, name: str, options: Options) -> Client:
        """A client, by its name; options override what it remembers."""
        client = self.clients.setdefault(name, Client(name))
        return Client(
            name,
            options.get("member", client.member_id),
            int(options.get("generation", client.generation_id)),
        )


def _set(world: World, _words: Words, options: Options) -> None:
    defaults = {"initial_rebalance_delay_ms": 0}
    world.driver = Driver(GroupConfig(**(defaults | {k: int(v) for k, v in options.items()})))


def _time(world: World, words: Words, _options: Options) -> None:
    world.driver.advance(int(words[0]))


def _log(world: World, words: Words, _options: Options) -> None:
    """Holds, commits or refuses writes."""
    if words[0] == "hold":
        world.driver.hold = True
    elif words[0] == "commit":
        world.driver.commit_next()
    elif words[0] == "fail":
        world.driver.fail_next(ErrorCode[words[1]])
    else:
        world.driver.hold = False
        while world.driver.queue:
            world.driver.commit_next()


def _crash(world: World, _words: Words, options: Options) -> None:
    keep = int(options.pop("keep", "0"))
    changed = {key: int(value) for key, value in options.items()}
    world.driver.config = replace(world.driver.config, **changed)
    world.driver.crash(keep)
    world.driver.hold = False


def _unload(world: World, _words: Words, _options: Options) -> None:
    world.driver.unload()


def _restart(world: World, words: Words, _options: Options) -> None:
    """A client process starts again and remembers nothing."""
    world.clients[words[0]] = Client(words[0])


_CONTROLS: dict[str, Callable[[World, Words, Options], None]] = {
    "set": _set,
    "time": _time,
    "log": _log,
    "crash": _crash,
    "unload": _unload,
    "restart": _restart,
}


def _join(world: World, words: Words, options: Options) -> tuple[Command, object]:
    client = world.client(words[1], options)
    metadata = subscription(options.get("topics", ""))
    version = int(options.get("version", "9"))
    names = [name for name in options.get("protocols", "range").split(",") if name]
    command = JoinGroup(
        words[0] if words[0] != '""' else "",
        client.member_id,
        client.name,
        "/10.0.0.1",
        int(options.get("session", "10000")),
        int(options.get("rebalance", "60000")),
        options.get("type", "consumer"),
        tuple((name, metadata) for name in names),
        options.get("instance"),
        requires_known_member_id=version >= 4,
        supports_skipping_assignment=version >= 9,
    )
    return command, client.name


def _sync(world: World, words: Words, options: Options) -> tuple[Command, object]:
    client = world.client(words[1], options)
    given = [pair.split(":") for pair in options.get("assign", "").split(",") if pair]
    assignments = tuple(
        (world.client(name, {}).member_id, partition.encode()) for name, partition in given
    )
    command = SyncGroup(
        words[0],
        client.member_id,
        client.generation_id,
        assignments,
        options.get("instance"),
        options.get("type"),
        options.get("protocol"),
    )
    return command, client.name


def _heartbeat(world: World, words: Words, options: Options) -> tuple[Command, object]:
    client = world.client(words[1], options)
    instance = options.get("instance")
    return Heartbeat(words[0], client.member_id, client.generation_id, instance), client.name


def _leave(world: World, words: Words, options: Options) -> tuple[Command, object]:
    names = words[1:]
    leaving = tuple(LeavingMember(world.client(n, options).member_id) for n in names)
    if "instance" in options:
        instances = options["instance"].split(",")
        leaving = tuple(LeavingMember(options.get("member", ""), i) for i in instances)
    return LeaveGroup(words[0], leaving), names[0] if names else "admin"


def _commit(world: World, words: Words, options: Options) -> tuple[Command, object]:
    """`admin` stands for a client that is no member."""
    offsets = []
    for word in words[2:]:
        place, _, offset = word.partition("=")
        topic, _, partition = place.partition("/")
        metadata = "x" * int(options["metadata_length"]) if "metadata_length" in options else None
        offsets.append(OffsetToCommit(topic, int(partition), int(offset), metadata=metadata))
    client = world.client(words[1], options)
    command = OffsetCommit(
        words[0],
        tuple(offsets),
        client.member_id,
        client.generation_id,
        options.get("instance"),
        int(options.get("retention", "-1")),
    )
    return command, client.name


def _places(words: Words) -> tuple[tuple[str, tuple[int, ...]], ...]:
    pairs = [word.split("/") for word in words]
    return tuple((topic, (int(partition),)) for topic, partition in pairs)


def _fetch(_world: World, words: Words, _options: Options) -> tuple[Command, object]:
    return OffsetFetch(words[0], _places(words[1:]) if words[1:] else None), "offsets"


def _delete_offsets(_world: World, words: Words, _options: Options) -> tuple[Command, object]:
    return OffsetDelete(words[0], _places(words[1:])), "admin"


def _list(_world: World, _words: Words, options: Options) -> tuple[Command, object]:
    states = tuple(s for s in options.get("states", "").split(",") if s)
    types = tuple(t for t in options.get("types", "").split(",") if t)
    return ListGroups(states, types), "groups"


def _describe(_world: World, words: Words, _options: Options) -> tuple[Command, object]:
    return DescribeGroup(words[0]), "admin"


def _delete(_world: World, words: Words, _options: Options) -> tuple[Command, object]:
    return DeleteGroup(words[0]), "admin"


def _delete_topic(_world: World, words: Words, _options: Options) -> tuple[Command, object]:
    return TopicsDeleted(frozenset(words)), None


_COMMANDS: dict[str, Callable[[World, Words, Options], tuple[Command, object]]] = {
    "join": _join,
    "sync": _sync,
    "heartbeat": _heartbeat,
    "leave": _leave,
    "commit": _commit,
    "fetch": _fetch,
    "delete-offsets": _delete_offsets,
    "list": _list,
    "describe": _describe,
    "delete": _delete,
    "delete-topic": _delete_topic,
}
