"""Bytes of entries, hard states, snapshots and messages. Big-endian, one version byte.

message     | version u8 | type u8 | fields |
entry       | term u64 | index u64 | type u8 | length u32 | data |
node id     i64, -1 for nobody
node list   | count u16 | i64 ... |
"""

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

from chronik.raft.messages import (
    AppendEntries,
    AppendResponse,
    ConfChange,
    ConfChangeTransition,
    ConfChangeType,
    ConfState,
    Entry,
    EntryType,
    HardState,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    MemberChange,
    Message,
    NodeId,
    Propose,
    ReadIndexRequest,
    ReadIndexResponse,
    RequestVote,
    Snapshot,
    TimeoutNow,
    TransferLeadership,
    VoteResponse,
)

VERSION: Final = 1

_U8 = struct.Struct(">B")
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")
_ENTRY = struct.Struct(">QQB")
_HARD_STATE = struct.Struct(">QqQ")
_MARK = struct.Struct(">QQ")
_ENVELOPE = struct.Struct(">BB")
_U64 = struct.Struct(">Q")
_CHANGES = struct.Struct(">BBH")
_CHANGE = struct.Struct(">Bq")
_NOBODY = -1
E = TypeVar("E", bound=IntEnum)

Buffer = bytes | bytearray | memoryview


class CodecError(ValueError):
    """Bytes that no version of this codec has written."""


class Reader:
    """Reads values one after the other and says so when the bytes end too early."""

    __slots__ = ("_data", "position")

    def __init__(self, data: Buffer) -> None:
        self._data = memoryview(data)
        self.position = 0

    def take(self, form: struct.Struct) -> tuple[int, ...]:
        """The fields of one struct, all of them numbers."""
        end = self.position + form.size
        if end > len(self._data):
            raise CodecError(f"{form.size} bytes due at {self.position}, the data ends before")
        values = form.unpack_from(self._data, self.position)
        self.position = end
        return values

    def blob(self) -> bytes:
        """Bytes with their length in front."""
        (length,) = self.take(_U32)
        end = self.position + length
        if end > len(self._data):
            raise CodecError(f"{length} bytes due at {self.position}, the data ends before")
        value = bytes(self._data[self.position : end])
        self.position = end
        return value

    def end(self) -> None:
        """Nothing may follow."""
        if self.position != len(self._data):
            raise CodecError(f"{len(self._data) - self.position} bytes too many")


def _blob(data: bytes) -> bytes:
    return _U32.pack(len(data)) + data


def _check_version(version: int) -> None:
    if version != VERSION:
        raise CodecError(f"version {version}, this node reads {VERSION}")


def _enum(kind: type[E], value: int) -> E:
    try:
        return kind(value)
    except ValueError as error:
        raise CodecError(str(error)) from error


def _nodes(nodes: Sequence[NodeId]) -> bytes:
    return _U16.pack(len(nodes)) + b"".join(map(_I64.pack, nodes))


def _read_nodes(reader: Reader) -> tuple[NodeId, ...]:
    (count,) = reader.take(_U16)
    return tuple(reader.take(_I64)[0] for _ in range(count))


def encode_entry(entry: Entry) -> bytes:
    """One entry."""
    return _ENTRY.pack(entry.term, entry.index, entry.type) + _blob(entry.data)


def read_entry(reader: Reader) -> Entry:
    """The next entry."""
    term, index, kind = reader.take(_ENTRY)
    return Entry(term, index, _enum(EntryType, kind), reader.blob())


def encode_hard_state(state: HardState) -> bytes:
    """Term, vote and commit index."""
    return _HARD_STATE.pack(state.term, _NOBODY if state.vote is None else state.vote, state.commit)


def read_hard_state(reader: Reader) -> HardState:
    """The next hard state."""
    term, vote, commit = reader.take(_HARD_STATE)
    return HardState(term, None if vote == _NOBODY else vote, commit)


def encode_conf_state(state: ConfState) -> bytes:
    """The members as a snapshot carries them."""
    lists = (state.voters, state.voters_outgoing, state.learners, state.learners_next)
    return b"".join(map(_nodes, lists)) + _U8.pack(state.auto_leave)


def read_conf_state(reader: Reader) -> ConfState:
    """The next conf state."""
    voters, outgoing, learners, learners_next = (_read_nodes(reader) for _ in range(4))
    (auto_leave,) = reader.take(_U8)
    return ConfState(voters, outgoing, learners, learners_next, bool(auto_leave))


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """A whole snapshot."""
    mark = _MARK.pack(snapshot.index, snapshot.term)
    return mark + encode_conf_state(snapshot.conf_state) + _blob(snapshot.data)


def read_snapshot(reader: Reader) -> Snapshot:
    """The next snapshot."""
    index, term = reader.take(_MARK)
    return Snapshot(index, term, read_conf_state(reader), reader.blob())


def encode_conf_change(change: ConfChange) -> bytes:
    """The data of an entry of type CONF_CHANGE."""
    changes = b"".join(_CHANGE.pack(one.type, one.node_id) for one in change.changes)
    head = _CHANGES.pack(VERSION, change.transition, len(change.changes))
    return head + changes + _blob(change.context)


def decode_conf_change(data: Buffer) -> ConfChange:
    """The change that an entry of type CONF_CHANGE holds."""
    reader = Reader(data)
    version, transition, count = reader.take(_CHANGES)
    _check_version(version)
    pairs = [reader.take(_CHANGE) for _ in range(count)]
    changes = tuple(MemberChange(_enum(ConfChangeType, kind), node) for kind, node in pairs)
    change = ConfChange(changes, _enum(ConfChangeTransition, transition), reader.blob())
    reader.end()
    return change


class _Kind(NamedTuple):
    """How one field of a message is written and read."""

    write: Callable[[Any], bytes]
    read: Callable[[Reader], Any]


def _write_entries(entries: Sequence[Entry]) -> bytes:
    return _U32.pack(len(entries)) + b"".join(map(encode_entry, entries))


def _read_entries(reader: Reader) -> tuple[Entry, ...]:
    (count,) = reader.take(_U32)
    return tuple(read_entry(reader) for _ in range(count))


_NODE = _Kind(_I64.pack, lambda reader: reader.take(_I64)[0])
_NUMBER = _Kind(_U64.pack, lambda reader: reader.take(_U64)[0])
_FLAG = _Kind(_U8.pack, lambda reader: bool(reader.take(_U8)[0]))
_BYTES = _Kind(_blob, Reader.blob)
_ENTRIES = _Kind(_write_entries, _read_entries)
_SNAPSHOT = _Kind(encode_snapshot, read_snapshot)
_ENTRY_TYPE = _Kind(_U8.pack, lambda reader: _enum(EntryType, reader.take(_U8)[0]))

_ADDRESS = {"sender": _NODE, "to": _NODE}
_HEAD = {**_ADDRESS, "term": _NUMBER}
_FORMS: Final[dict[type[Message], dict[str, _Kind]]] = {
    RequestVote: {
        **_HEAD,
        "last_index": _NUMBER,
        "last_term": _NUMBER,
        "pre_vote": _FLAG,
        "transfer": _FLAG,
        "commit": _NUMBER,
        "commit_term": _NUMBER,
    },
    VoteResponse: {
        **_HEAD,
        "granted": _FLAG,
        "pre_vote": _FLAG,
        "commit": _NUMBER,
        "commit_term": _NUMBER,
    },
    AppendEntries: {
        **_HEAD,
        "prev_index": _NUMBER,
        "prev_term": _NUMBER,
        "commit": _NUMBER,
        "entries": _ENTRIES,
    },
    AppendResponse: {
        **_HEAD,
        "index": _NUMBER,
        "rejected": _FLAG,
        "hint_index": _NUMBER,
        "hint_term": _NUMBER,
    },
    Heartbeat: {**_HEAD, "commit": _NUMBER, "round": _NUMBER},
    HeartbeatResponse: {**_HEAD, "round": _NUMBER},
    InstallSnapshot: {**_HEAD, "snapshot": _SNAPSHOT},
    TimeoutNow: _HEAD,
    Propose: {**_ADDRESS, "type": _ENTRY_TYPE, "data": _BYTES},
    ReadIndexRequest: {**_ADDRESS, "context": _BYTES},
    ReadIndexResponse: {**_HEAD, "index": _NUMBER, "context": _BYTES},
    TransferLeadership: {**_ADDRESS, "target": _NODE},
}
"""Fields in the order of their bytes; a message's number is its place here, so new ones go last."""
_TYPES: Final = list(_FORMS)


def encode_message(message: Message) -> bytes:
    """One message between two nodes."""
    head = _ENVELOPE.pack(VERSION, _TYPES.index(type(message)))
    form = _FORMS[type(message)]
    return head + b"".join(kind.write(getattr(message, name)) for name, kind in form.items())


def decode_message(data: Buffer) -> Message:
    """The message in `data`; raises CodecError for anything else."""
    reader = Reader(data)
    version, number = reader.take(_ENVELOPE)
    _check_version(version)
    if number >= len(_TYPES):
        raise CodecError(f"message type {number} is unknown")
    message_type = _TYPES[number]
    values = {name: kind.read(reader) for name, kind in _FORMS[message_type].items()}
    reader.end()
    return message_type(**values)
