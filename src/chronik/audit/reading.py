"""The consumers of a run: each on its own thread with a ledger of its own, alone or as a group."""

import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

from chronik.audit.clients import (
    ConsumerClient,
    ConsumerSettings,
    Place,
    TransientError,
    open_consumer,
)
from chronik.audit.ledger import LedgerWriter
from chronik.audit.plan import Plan, Progress, client_words, ledger_path
from chronik.audit.record_log import Polled, RecordLog
from chronik.audit.rows import Kind, Row

SAMPLE_NS = 200_000_000
POLL_S = 0.2


class _Open(NamedTuple):
    """What a reader's thread works with."""

    client: ConsumerClient
    log: RecordLog
    ledger: LedgerWriter


class Team:
    """What the members of one group have reached together: partition to position."""

    def __init__(self, group: str = "") -> None:
        self.group = group
        self._places: dict[int, int] = {}
        self._lock = threading.Lock()

    def reached(self, partition: int, position: int) -> None:
        """Only forward: what a rebalance gives again was read before."""
        with self._lock:
            self._places[partition] = max(position, self._places.get(partition, -1))

    def is_at(self, ends: Mapping[int, int]) -> bool:
        return all(self._places.get(partition, -1) >= end for partition, end in ends.items())


class Reader:
    """One consumer on its own thread, until it is at the end offsets or makes no progress."""

    def __init__(
        self, plan: Plan, name: str, progress: Progress, team: Team | None = None, part: int = 0
    ) -> None:
        self.plan, self.name, self._progress = plan, name, progress
        own = f"chronik-{plan.run_name}-{name}" if plan.group else ""
        self.team = team or Team(own)
        self._part, self._wanted_part = part, part
        self.has_place = False
        """It has been given partitions."""
        self._ends: dict[int, int] | None = None
        self._ends_ns = 0
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        progress.read[name] = 0

    def start(self) -> None:
        self._thread.start()

    def stop_at(self, ends: dict[int, int]) -> None:
        """Read up to these end offsets, then stop."""
        self._ends_ns = time.monotonic_ns()
        self._ends = ends

    def join(self) -> None:
        """Until it has stopped; raises what stopped the thread early."""
        self._thread.join()
        if self._error:
            raise self._error

    def finish(self, ends: dict[int, int]) -> None:
        self.stop_at(ends)
        self.join()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def rotate(self, part: int) -> None:
        """Goes on in the next file, soon: `rotated` tells when."""
        self._wanted_part = part

    @property
    def rotated(self) -> bool:
        return self._part == self._wanted_part or not self.running

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - handed to the thread that asked
            self._error = error

    def _run(self) -> None:
        plan = self.plan
        path = ledger_path(plan, self.name, self._part)
        with LedgerWriter(path, plan.run_name, self.name) as ledger:
            ledger.note(Kind.CLIENT, client_words(plan, isolation="read_committed"))
            log = RecordLog(ledger, plan.topic, plan.run)
            settings = ConsumerSettings(
                plan.bootstrap,
                plan.topic,
                plan.partitions,
                self.team.group,
                plan.poll_records_max,
                plan.fetch_wait_ms,
            )

            def moved(how: str, partition: int, position: int) -> None:
                self.has_place = how != "revoke"
                log.append(move_row(how, partition, position, ledger.now_ns()))

            client = open_consumer(plan.client, settings, moved)
            try:
                self._read(_Open(client, log, ledger))
            finally:
                client.close()
                log.flush()

    def _read(self, own: _Open) -> None:
        began = moved_ns = sampled_ns = own.ledger.now_ns()
        poll = total = 0
        while not self._done():
            records = self._poll(own)
            poll += 1
            now = own.ledger.now_ns()
            if records:
                own.log.records(poll, records)
                self._progress.read[self.name] += len(records)
                self._progress.read_s[self.name] = (now - began) / 1e9
            if total != sum(self._progress.read.values()):
                moved_ns, total = now, sum(self._progress.read.values())
            if now - sampled_ns >= SAMPLE_NS or not records:
                sampled_ns = now
                self._sample(own, poll, now)
            if self._wanted_part != self._part:
                self._rotate(own)
            waited_ns = now - max(moved_ns, self._ends_ns)
            if self._ends is not None and waited_ns > self.plan.timeout_s * 1e9:
                self._progress.timed_out.append(self.name)
                return

    def _poll(self, own: _Open) -> list[Polled]:
        try:
            return own.client.poll(POLL_S)
        except TransientError as error:
            own.log.append(Row(Kind.FAULT, detail=f"poll: {error}"))
            time.sleep(POLL_S)
            return []

    def _places_now(self, own: _Open) -> dict[int, Place]:
        try:
            return own.client.places()
        except TransientError as error:
            own.log.append(Row(Kind.FAULT, detail=f"position: {error}"))
            return {}

    def _sample(self, own: _Open, poll: int, now_ns: int) -> None:
        for partition, place in self._places_now(own).items():
            self.team.reached(partition, place.position)
            own.log.append(
                Row(
                    Kind.POLL,
                    begin_ns=now_ns,
                    end_ns=now_ns,
                    partition=partition,
                    position=place.position,
                    offset=place.end,
                    poll=poll,
                )
            )

    def _rotate(self, own: _Open) -> None:
        """A new file begins with the places that the old one ended at."""
        own.log.flush()
        part = self._wanted_part
        own.ledger.rotate(ledger_path(self.plan, self.name, part))
        own.ledger.note(Kind.CLIENT, client_words(self.plan, isolation="read_committed"))
        how = "rebalance" if self.team.group else "assign"
        for partition, place in self._places_now(own).items():
            own.log.append(move_row(how, partition, place.position, own.ledger.now_ns()))
        self._part = part

    def _done(self) -> bool:
        return self._ends is not None and self.team.is_at(self._ends)


def move_row(how: str, partition: int, position: int, now_ns: int) -> Row:
    kind = Kind.REVOKE if how == "revoke" else Kind.ASSIGN
    detail = how if how == "rebalance" else ""
    return Row(kind, "", now_ns, now_ns, partition=partition, position=position, detail=detail)
