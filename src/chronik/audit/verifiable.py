"""Kafka's own VerifiableProducer and VerifiableConsumer: their JSON lines as ledger rows.

The producer's values are numbers in its program order, with an optional prefix (`prefix.number`).
A consumer run with `--verbose` prints each record; without it only ranges, which prove nothing
about values, so they are kept as positions.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from chronik.audit.ledger import LedgerError
from chronik.audit.rows import NONE, Kind, Outcome, Row

MS = 1_000_000


def read_verifiable(path: Path, process: str = "") -> list[Row]:
    """One file of lines; the process is named after the file unless said otherwise."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        numbered = _Numbered(lines)
        try:
            return list(parse_lines(numbered, process or path.stem))
        except (KeyError, TypeError, ValueError) as error:
            why = f"{type(error).__name__} {error}"
            raise LedgerError(
                f"{path}:{numbered.line}: not a Verifiable client's: {why}"
            ) from error


class _Numbered:
    """Lines, and the number of the one that is read now."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines, self.line = lines, 0

    def __iter__(self) -> Iterator[str]:
        for self.line, text in enumerate(self._lines, 1):  # noqa: B020 - the number is kept
            yield text


def parse_lines(lines: Iterable[str], process: str) -> Iterator[Row]:
    poll = 0
    for line in lines:
        event = _event(line)
        name = event.get("name", "")
        poll += name == "records_consumed"
        if name in ("producer_send_success", "producer_send_error"):
            yield _send(event, process)
        elif name == "record_data":
            yield _record(event, process, poll)
        elif name in ("partitions_assigned", "partitions_revoked"):
            yield from _moves(event, process)


def _event(line: str) -> dict[str, Any]:
    """Tools print other lines too (warnings, settings): they are skipped."""
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _value(text: object) -> tuple[str, int]:
    """Prefix and number of a value; a value that is no number names nobody."""
    prefix, _, number = str(text).rpartition(".")
    return (f"producer{prefix and '-' + prefix}", int(number)) if number.isdigit() else ("", NONE)


def _send(event: dict[str, Any], process: str) -> Row:
    sender, sequence = _value(event.get("value"))
    ok = event["name"] == "producer_send_success"
    end_ns = int(event.get("timestamp", 0)) * MS
    return Row(
        Kind.SEND,
        process,
        end_ns=end_ns,
        topic=str(event.get("topic", "")),
        partition=int(event.get("partition", NONE)),
        offset=int(event.get("offset", NONE)),
        sender=sender,
        sequence=sequence,
        outcome=Outcome.OK if ok else Outcome.INFO,
        detail="" if ok else str(event.get("exception", "")),
    )


def _record(event: dict[str, Any], process: str, poll: int) -> Row:
    sender, sequence = _value(event.get("value"))
    return Row(
        Kind.RECORD,
        process,
        end_ns=int(event.get("timestamp", 0)) * MS,
        topic=str(event["topic"]),
        partition=int(event["partition"]),
        offset=int(event["offset"]),
        sender=sender,
        sequence=sequence,
        outcome=Outcome.OK,
        poll=poll,
    )


def _moves(event: dict[str, Any], process: str) -> Iterator[Row]:
    kind = Kind.ASSIGN if event["name"] == "partitions_assigned" else Kind.REVOKE
    for place in event.get("partitions", []):
        yield Row(
            kind,
            process,
            begin_ns=int(event.get("timestamp", 0)) * MS,
            topic=str(place["topic"]),
            partition=int(place["partition"]),
            detail="rebalance",
        )
