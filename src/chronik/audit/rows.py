"""What a ledger says: one row per event at a client, all kinds in one shape.

A *value* is named by who sent it and its place in that sender's program order (sender, sequence).
A *key* is a topic-partition. Absent numbers are -1 and absent texts are empty, never null.

| kind | written by | means |
|---|---|---|
| client | every process | its settings, in `detail`, as `name=value` words |
| topic | the workload | the topic's settings (`cleanup.policy=compact`), in `detail` |
| intent | a producer | sends `sequence` .. `sequence + records - 1` may begin from `begin_ns` on |
| send | a producer | the outcome of one send |
| transaction | a producer | its transaction: ok committed, fail aborted, info unknown |
| record | a consumer | one record that a poll returned |
| replica | a reader of files | one record found in a replica's own log |
| poll | a consumer | after a poll: `position`, and `offset` = end offset known to it |
| assign, revoke, seek | a consumer | its place in a key was changed on purpose, to `position` |
| log | a final reader | `position` = log start offset, `offset` = end offset, read to the end |
| epoch | a consumer | the leader epoch that metadata showed, or who leads, in `detail` |
| watermark | a node | `offset` = its high watermark (`detail` = follower where it did not lead) |
| fault | the workload | something was done to the cluster, said in `detail` |
"""

from enum import StrEnum
from typing import NamedTuple

NONE = -1
"""An absent number."""


class Kind(StrEnum):
    """What happened."""

    CLIENT = "client"
    TOPIC = "topic"
    INTENT = "intent"
    SEND = "send"
    TRANSACTION = "transaction"
    RECORD = "record"
    REPLICA = "replica"
    POLL = "poll"
    ASSIGN = "assign"
    REVOKE = "revoke"
    SEEK = "seek"
    LOG = "log"
    EPOCH = "epoch"
    WATERMARK = "watermark"
    FAULT = "fault"


class Outcome(StrEnum):
    """How an operation ended; `INFO` is what nobody knows (a timeout, a crash)."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Row(NamedTuple):
    """One row of a ledger. Times are nanoseconds of the machine's monotonic clock."""

    kind: str
    process: str = ""
    begin_ns: int = NONE
    end_ns: int = NONE
    topic: str = ""
    partition: int = NONE
    offset: int = NONE
    sender: str = ""
    sequence: int = NONE
    checksum: int = NONE
    key: int = NONE
    outcome: str = ""
    detail: str = ""
    poll: int = NONE
    position: int = NONE
    epoch: int = NONE
    generation: int = NONE
    transaction: int = NONE
    records: int = NONE
    run: str = ""


class Partition(NamedTuple):
    """A topic-partition: the key of every order and every loss."""

    topic: str
    partition: int


class Value(NamedTuple):
    """The name of what was sent: unique in a run."""

    sender: str
    sequence: int


def words(detail: str) -> dict[str, str]:
    """The settings in the detail of a client or topic row."""
    return dict(word.split("=", 1) for word in detail.split() if "=" in word)


def partition_of(row: Row) -> Partition:
    return Partition(row.topic, row.partition)


def value_of(row: Row) -> Value:
    """A send's own value, or the value that a record carried; sender is empty if it named none."""
    return Value(row.sender or (row.process if row.kind == Kind.SEND else ""), row.sequence)
