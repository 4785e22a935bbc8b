"""Histories as text: each block of a scenario is one ledger, and its output is the verdict.

client p0 idempotent=true          settings of a process; `topic t cleanup.policy=compact` likewise
send p0 0-9 t-0 @0                 sends 0..9 acked at offsets 0..9 (`info`, `fail` instead of ok)
send p0 3 t-0 @3 txn=1 begin=1 end=2 key=7 sum=5
commit p0 1 / abort p0 1 / unknown p0 1
poll c0 t-0 p0.0-9@0 p0.10@12!     one poll; `!` marks a record whose checksum is wrong
replica n1 t-0 p0.0@0              the same, found in a replica's log
assign c0 t-0 0 / rebalance c0 t-0 0 / seek c0 t-0 5 / revoke c0 t-0
position c0 t-0 5 end=9 at=3       a sample of a consumer's place, `at` in seconds
log t-0 start=0 end=10             a final reader came to the end
epoch c0 t-0 4 / watermark n1 t-0 430 [follower]
policy at_least_once=true
"""

import re
from collections.abc import Callable, Iterator

from chronik.audit.anomaly import Level, Policy
from chronik.audit.rows import Kind, Outcome, Row
from chronik.audit.verdict import judge

SECOND = 1_000_000_000
OUTCOMES = {"commit": Outcome.OK, "abort": Outcome.FAIL, "unknown": Outcome.INFO}


def play() -> Callable[[str], str]:
    return verdict_of


def verdict_of(block: str) -> str:
    lines = [line for line in block.splitlines() if not line.startswith("#")]
    policy = Policy()
    rows: list[Row] = []
    for number, line in enumerate(lines):
        command, *rest = line.split()
        if command == "policy":
            policy = Policy(at_least_once="at_least_once=true" in rest, stall_level=Level.WARN)
        else:
            rows.extend(rows_of(command, rest, number))
    verdict = judge(rows, policy)
    found = [f"{a.level} {a.name} {a.count}: {a.examples[0].statement}" for a in verdict.anomalies]
    return "\n".join(["ok" if verdict.ok else "NOT OK", *found])


def rows_of(command: str, words: list[str], number: int) -> Iterator[Row]:
    options = dict(word.split("=", 1) for word in words if "=" in word)
    plain = [word for word in words if "=" not in word]
    if command in ("client", "topic"):
        name = {"process": plain[0]} if command == "client" else {"topic": plain[0]}
        yield Row(command, detail=" ".join(words[1:]), **name)  # type: ignore[arg-type]
    elif command == "send":
        yield from sends(plain, options, number)
    elif command in OUTCOMES:
        yield Row(Kind.TRANSACTION, plain[0], transaction=int(plain[1]), outcome=OUTCOMES[command])
    elif command in ("poll", "replica"):
        yield from records(command, plain, options, number)
    else:
        yield place(command, plain, options, number)


def sends(plain: list[str], options: dict[str, str], number: int) -> Iterator[Row]:
    process, span, partition, *rest = plain
    offset = next((int(word[1:]) for word in rest if word.startswith("@")), -1)
    outcome = next((word for word in rest if word in ("ok", "fail", "info")), "ok")
    for index, sequence in enumerate(numbers(span)):
        yield Row(
            Kind.SEND,
            process,
            begin_ns=int(float(options.get("begin", number)) * SECOND),
            end_ns=int(float(options.get("end", number + 0.5)) * SECOND),
            **key(partition),  # type: ignore[arg-type]
            offset=offset + index if offset >= 0 else -1,
            sequence=sequence,
            checksum=int(options.get("sum", 1)),
            key=int(options.get("key", -1)),
            transaction=int(options.get("txn", -1)),
            outcome=outcome,
        )


def records(command: str, plain: list[str], options: dict[str, str], number: int) -> Iterator[Row]:
    process, partition, *items = plain
    kind = Kind.RECORD if command == "poll" else Kind.REPLICA
    for item in items:
        match = re.fullmatch(r"(\w+)\.([\d-]+)@(\d+)(!?)", item)
        assert match, item
        sender, span, offset, damaged = match.groups()
        for index, sequence in enumerate(numbers(span)):
            yield Row(
                kind,
                process,
                end_ns=number * SECOND,
                **key(partition),  # type: ignore[arg-type]
                offset=int(offset) + index,
                sender=sender,
                sequence=sequence,
                checksum=int(options.get("sum", 1)),
                key=int(options.get("key", -1)),
                outcome=Outcome.FAIL if damaged else Outcome.OK,
                poll=number,
                epoch=int(options.get("epoch", -1)),
                transaction=int(options.get("txn", -1)),
            )


def place(command: str, plain: list[str], options: dict[str, str], number: int) -> Row:
    process, partition, *rest = plain if command != "log" else ["final", *plain]
    value = int(rest[0]) if rest else -1
    at_ns = int(float(options.get("at", number)) * SECOND)
    base = Row(Kind.ASSIGN, process, at_ns, at_ns, **key(partition))  # type: ignore[arg-type]
    match command:
        case "assign" | "seek" | "revoke":
            return base._replace(kind=Kind(command), position=value)
        case "rebalance":
            return base._replace(kind=Kind.ASSIGN, position=value, detail="rebalance")
        case "position":
            return base._replace(kind=Kind.POLL, position=value, offset=int(options["end"]))
        case "log":
            start = int(options.get("start", 0))
            return base._replace(kind=Kind.LOG, position=start, offset=int(options["end"]))
        case "epoch":
            return base._replace(kind=Kind.EPOCH, epoch=value)
        case "watermark":
            detail = "follower" if "follower" in rest else ""
            return base._replace(kind=Kind.WATERMARK, offset=value, detail=detail)
        case _:
            raise ValueError(f"unknown line: {command}")


def numbers(span: str) -> range:
    first, _, last = span.partition("-")
    return range(int(first), int(last or first) + 1)


def key(partition: str) -> dict[str, object]:
    topic, _, number = partition.rpartition("-")
    return {"topic": topic, "partition": int(number)}
