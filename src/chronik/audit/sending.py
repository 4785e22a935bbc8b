"""The producer of a run: records in chunks, at the asked rate, alone or in transactions."""

import time
from types import TracebackType
from typing import Self

from chronik.audit.clients import (
    Outgoing,
    ProducerClient,
    ProducerSettings,
    TransactionalClient,
    open_producer,
    open_transactional,
)
from chronik.audit.ledger import LedgerWriter
from chronik.audit.payload import JsonWriter, PayloadWriter, Writer
from chronik.audit.plan import Plan, Progress, Show, client_words, ledger_path
from chronik.audit.rows import NONE, Kind, Outcome
from chronik.audit.send_log import INTENT_RANGE, SendLog

CHUNK = 64
"""Sends that share one begin time; a divisor of the intent range."""
WAIT_S = 0.005
"""An ack is seen at most so much later than it came, while the rate holds the producer back."""
ABORT_EVERY = 4
"""One of so many transactions is aborted on purpose: a reader must not see it."""
assert INTENT_RANGE % CHUNK == 0


class Sender:
    """One producer and its ledger. A send without an outcome is info by its intent."""

    def __init__(self, plan: Plan, progress: Progress, part: int = 0) -> None:
        self.plan, self._progress = plan, progress
        self._ledger = LedgerWriter(ledger_path(plan, "p0", part), plan.run_name, "p0")
        try:
            self._log = SendLog(self._ledger, plan.topic, plan.messages)
            self._note_settings()
            self._transaction = 0
            self._in_transactions: TransactionalClient | None = None
            self._client = self._opened()
        except BaseException:
            self._ledger.close()
            raise
        self._payloads: Writer = (
            JsonWriter(plan.run, 0) if plan.as_json else PayloadWriter(plan.run, 0, plan.size)
        )
        self._chunk = CHUNK if plan.rate == 0 else max(1, min(CHUNK, int(plan.rate / 50)))
        self._began = time.perf_counter()
        self._paced_from = 0

    def _opened(self) -> ProducerClient:
        plan = self.plan
        settings = ProducerSettings(
            plan.bootstrap,
            plan.topic,
            plan.acks,
            plan.is_exact,
            plan.delivery_timeout_s or plan.timeout_s,
        )
        if not plan.transactions:
            return open_producer(plan.client, settings, self._log)
        settings = settings._replace(transactional_id=f"chronik-{plan.run_name}")
        self._in_transactions = open_transactional(settings, self._log)
        return self._in_transactions

    def send_to(self, last: int, show: Show) -> None:
        """All sends up to that sequence (without it)."""
        self._began, self._paced_from = time.perf_counter(), self._progress.sent
        while self._progress.sent < last:
            if self._in_transactions:
                count = min(self.plan.transactions, last - self._progress.sent)
                self._transact(self._in_transactions, count, show)
            else:
                self._send(last, NONE, show)

    def _transact(self, client: TransactionalClient, count: int, show: Show) -> None:
        self._transaction += 1
        begin_ns = self._ledger.now_ns()
        client.begin_transaction()
        last = self._progress.sent + count
        while self._progress.sent < last:
            self._send(last, self._transaction, show)
        outcome, why = client.end_transaction(commit=self._transaction % ABORT_EVERY != 0)
        self._log.transaction(self._transaction, begin_ns, outcome, why)
        self._progress.committed += outcome == Outcome.OK
        if outcome == Outcome.FAIL:
            self._progress.aborted += 1
            self._progress.aborted_records += count

    def _send(self, last: int, transaction: int, show: Show) -> None:
        """One chunk."""
        progress = self._progress
        boundary = INTENT_RANGE - progress.sent % INTENT_RANGE
        count = min(self._chunk, last - progress.sent, boundary)
        self._client.send(self._begun(progress.sent, count, transaction))
        progress.sent += count
        self._client.drain()
        show(progress)
        if self.plan.rate:
            due_s = (progress.sent - self._paced_from) / self.plan.rate
            while (left_s := self._began + due_s - time.perf_counter()) > 0:
                self._client.drain(min(left_s, WAIT_S))

    def _begun(self, first: int, count: int, transaction: int) -> list[Outgoing]:
        """Makes a chunk of records and writes down that their sends begin now."""
        plan = self.plan
        sequences = range(first, first + count)
        keys = [b"%d" % (n % plan.keys) for n in sequences] if plan.keys else [b""] * count
        write = self._payloads.write
        values = [write(n, key) for n, key in zip(sequences, keys, strict=True)]
        numbers = [n % plan.keys for n in sequences] if plan.keys else []
        self._log.begin(first, [checksum for _, checksum in values], numbers, transaction)
        return [
            Outgoing(
                sequence,
                None if plan.keys else sequence % plan.partitions,
                key or None,
                value,
            )
            for sequence, key, (value, _) in zip(sequences, keys, values, strict=True)
        ]

    def _note_settings(self) -> None:
        plan = self.plan
        exact = str(plan.is_exact).lower()
        self._ledger.note(Kind.CLIENT, client_words(plan, idempotent=exact, acks=plan.acks))
        self._ledger.note(Kind.TOPIC, f"partitions={plan.partitions}", plan.topic)

    def settle(self) -> None:
        """Waits until each send has an outcome; what has none then is of unknown end."""
        self._progress.acked_left = self._client.settle(self.plan.timeout_s)

    def rotate(self, part: int) -> None:
        """Goes on in the next file; all sends before it have ended."""
        self._log.rotate(ledger_path(self.plan, "p0", part))
        self._note_settings()

    def close(self) -> None:
        self._progress.acked_left = self._client.close(self.plan.timeout_s)
        self._log.close()
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._ledger.close()


def produce(plan: Plan, progress: Progress, show: Show) -> None:
    """All sends of a plan."""
    with Sender(plan, progress) as sender:
        began = time.perf_counter()
        sender.send_to(plan.messages, show)
    progress.produce_s = time.perf_counter() - began
