"""A run of the auditor against a cluster: produce N records, read them back, keep ledgers of both.

The producer runs on the caller's thread and each consumer on its own; each writes its own ledger.
Nothing is judged here: `verify.py` reads the ledgers back from disk and judges those.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from chronik.audit.client_confluent import Cluster
from chronik.audit.clients import (
    ConsumerClient,
    ConsumerSettings,
    Outgoing,
    Place,
    ProducerSettings,
    TransientError,
    open_consumer,
    open_producer,
)
from chronik.audit.ledger import INTENT_RANGE, SUFFIX, LedgerWriter, SendLog
from chronik.audit.payload import JsonWriter, PayloadWriter, Writer
from chronik.audit.record_log import Polled, RecordLog
from chronik.audit.rows import Kind, Row

CHUNK = 64
"""Sends that share one begin time; a divisor of the intent range."""
SAMPLE_NS = 200_000_000
POLL_S = 0.2
assert INTENT_RANGE % CHUNK == 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run."""

    bootstrap: str
    topic: str
    run: int
    ledger: Path
    client: str = "confluent"
    messages: int = 5_000
    rate: float = 0.0
    acks: str = "all"
    idempotent: bool = False
    size: int = 100
    keys: int = 0
    as_json: bool = False
    """Values as JSON, for a topic that is to become a table; `size` does not count then."""
    partitions: int = 3
    replication: int = 1
    group: bool = False
    timeout_s: float = 60.0
    delivery_timeout_s: float = 0.0
    """How long the producer tries to send a record; 0 is `timeout_s`."""
    poll_records_max: int = 500
    fetch_wait_ms: int = 500
    at_least_once: bool = False
    """Brokers fail during the run: without idempotence, retries may duplicate and reorder."""

    @property
    def run_name(self) -> str:
        return f"{self.run:016x}"


@dataclass(slots=True)
class Progress:
    """Numbers of a run while it goes; each is written by one thread only."""

    sent: int = 0
    acked_left: int = 0
    produce_s: float = 0.0
    read: dict[str, int] = field(default_factory=dict)
    read_s: dict[str, float] = field(default_factory=dict)
    timed_out: list[str] = field(default_factory=list)


Show = Callable[[Progress], None]


class Reader:
    """One consumer on its own thread, until it is at the end offsets or makes no progress."""

    def __init__(self, plan: Plan, name: str, progress: Progress) -> None:
        self.plan, self.name, self._progress = plan, name, progress
        self._ends: dict[int, int] | None = None
        self._ends_ns = 0
        self._places: dict[int, int] = {}
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        progress.read[name] = 0

    def start(self) -> None:
        self._thread.start()

    def finish(self, ends: dict[int, int]) -> None:
        """Read up to these end offsets, then stop; raises what stopped the thread early."""
        self._ends_ns = time.monotonic_ns()
        self._ends = ends
        self._thread.join()
        if self._error:
            raise self._error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - handed to the thread that asked
            self._error = error

    def _run(self) -> None:
        plan = self.plan
        with LedgerWriter(ledger_path(plan, self.name), plan.run_name, self.name) as ledger:
            ledger.note(Kind.CLIENT, client_words(plan, isolation="read_committed"))
            log = RecordLog(ledger, plan.topic, plan.run)
            settings = ConsumerSettings(
                plan.bootstrap,
                plan.topic,
                plan.partitions,
                f"chronik-{plan.run_name}-{self.name}" if plan.group else "",
                plan.poll_records_max,
                plan.fetch_wait_ms,
            )

            def moved(how: str, partition: int, position: int) -> None:
                log.append(move_row(how, partition, position, ledger.now_ns()))

            client = open_consumer(plan.client, settings, moved)
            try:
                self._read(client, log, ledger)
            finally:
                client.close()
                log.flush()

    def _read(self, client: ConsumerClient, log: RecordLog, ledger: LedgerWriter) -> None:
        began = moved_ns = sampled_ns = ledger.now_ns()
        poll = 0
        while not self._done():
            records = self._poll(client, log)
            poll += 1
            now = ledger.now_ns()
            if records:
                log.records(poll, records)
                moved_ns = now
                self._progress.read[self.name] += len(records)
                self._progress.read_s[self.name] = (now - began) / 1e9
            if now - sampled_ns >= SAMPLE_NS or not records:
                sampled_ns = now
                self._sample(client, log, poll, now)
            waited_ns = now - max(moved_ns, self._ends_ns)
            if self._ends is not None and waited_ns > self.plan.timeout_s * 1e9:
                self._progress.timed_out.append(self.name)
                return

    def _poll(self, client: ConsumerClient, log: RecordLog) -> list[Polled]:
        try:
            return client.poll(POLL_S)
        except TransientError as error:
            log.append(Row(Kind.FAULT, detail=f"poll: {error}"))
            time.sleep(POLL_S)
            return []

    def _places_now(self, client: ConsumerClient, log: RecordLog) -> dict[int, Place]:
        try:
            return client.places()
        except TransientError as error:
            log.append(Row(Kind.FAULT, detail=f"position: {error}"))
            return {}

    def _sample(self, client: ConsumerClient, log: RecordLog, poll: int, now_ns: int) -> None:
        for partition, place in self._places_now(client, log).items():
            self._places[partition] = place.position
            log.append(
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

    def _done(self) -> bool:
        ends = self._ends
        return ends is not None and all(
            self._places.get(partition, -1) >= end for partition, end in ends.items()
        )


def produce(plan: Plan, progress: Progress, show: Show) -> None:
    """All sends, in chunks, at the asked rate; a send without an outcome is info by its intent."""
    with LedgerWriter(ledger_path(plan, "p0"), plan.run_name, "p0") as ledger:
        idempotent = str(plan.idempotent).lower()
        ledger.note(Kind.CLIENT, client_words(plan, idempotent=idempotent, acks=plan.acks))
        ledger.note(Kind.TOPIC, f"partitions={plan.partitions}", plan.topic)
        log = SendLog(ledger, plan.topic, plan.messages)
        settings = ProducerSettings(
            plan.bootstrap,
            plan.topic,
            plan.acks,
            plan.idempotent,
            plan.delivery_timeout_s or plan.timeout_s,
        )
        client = open_producer(plan.client, settings, log)
        payloads: Writer = (
            JsonWriter(plan.run, 0) if plan.as_json else PayloadWriter(plan.run, 0, plan.size)
        )
        chunk = CHUNK if plan.rate == 0 else max(1, min(CHUNK, int(plan.rate / 50)))
        began = time.perf_counter()
        while progress.sent < plan.messages:
            first = progress.sent
            boundary = INTENT_RANGE - first % INTENT_RANGE
            count = min(chunk, plan.messages - first, boundary)
            client.send(_begin(plan, payloads, log, first, count))
            progress.sent += count
            client.drain()
            show(progress)
            if plan.rate:
                time.sleep(max(0.0, began + progress.sent / plan.rate - time.perf_counter()))
        progress.acked_left = client.close(plan.timeout_s)
        progress.produce_s = time.perf_counter() - began
        log.close()


def _begin(plan: Plan, payloads: Writer, log: SendLog, first: int, count: int) -> list[Outgoing]:
    """Makes a chunk of records and writes down that their sends begin now."""
    sequences = range(first, first + count)
    keys = [b"%d" % (n % plan.keys) for n in sequences] if plan.keys else [b""] * count
    values = [payloads.write(n, key) for n, key in zip(sequences, keys, strict=True)]
    numbers = [n % plan.keys for n in sequences] if plan.keys else []
    log.begin(first, [checksum for _, checksum in values], numbers)
    return [
        Outgoing(
            sequence,
            None if plan.keys else sequence % plan.partitions,
            key or None,
            value,
        )
        for sequence, key, (value, _) in zip(sequences, keys, values, strict=True)
    ]


def run(plan: Plan, show: Show) -> Progress:
    """One whole run: topic, reader beside the producer, final read up to the end offsets."""
    plan.ledger.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(plan.bootstrap, plan.timeout_s)
    cluster.brokers()
    cluster.create_topic(plan.topic, plan.partitions, plan.replication)
    progress = Progress()
    reader = Reader(plan, "c0", progress)
    reader.start()
    produce(plan, progress, show)
    finish(cluster, plan, reader, progress, show)
    return progress


def finish(cluster: Cluster, plan: Plan, reader: Reader, progress: Progress, show: Show) -> None:
    """The final read: the end offsets are asked first, then must be reached."""
    bounds = cluster.log_bounds(plan.topic, plan.partitions)
    waiter = threading.Thread(
        target=_watch, args=(reader, progress, show), name="progress", daemon=True
    )
    waiter.start()
    reader.finish({partition: end for partition, (_, end) in bounds.items()})
    waiter.join()
    name = f"final-{reader.name}"
    with LedgerWriter(ledger_path(plan, name), plan.run_name, name) as ledger:
        for partition, (start, end) in cluster.log_bounds(plan.topic, plan.partitions).items():
            row = Row(Kind.LOG, begin_ns=ledger.now_ns(), topic=plan.topic, partition=partition)
            ledger.append(row._replace(position=start, offset=end))


def _watch(reader: Reader, progress: Progress, show: Show) -> None:
    while reader.running:
        show(progress)
        time.sleep(0.1)
    show(progress)


def ledger_path(plan: Plan, process: str) -> Path:
    return plan.ledger / f"{plan.run_name}-{process}{SUFFIX}"


def client_words(plan: Plan, **settings: str) -> str:
    """Settings of a client row; the wall clock is there to place the monotonic times in a day."""
    words = {"client": plan.client, "clock": _boot_id(), "wall_ns": str(time.time_ns()), **settings}
    return " ".join(f"{name}={value}" for name, value in words.items())


def move_row(how: str, partition: int, position: int, now_ns: int) -> Row:
    kind = Kind.REVOKE if how == "revoke" else Kind.ASSIGN
    detail = how if how == "rebalance" else ""
    return Row(kind, "", now_ns, now_ns, partition=partition, position=position, detail=detail)


def _boot_id() -> str:
    """Names the clock: monotonic times of one boot of one machine can be compared."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
