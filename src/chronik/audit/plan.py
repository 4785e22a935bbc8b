"""What a run of the workload is asked for, its numbers while it goes, and where its ledgers lie."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from chronik.audit.ledger import SUFFIX


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
    transactions: int = 0
    """Records per transaction; 0 sends without transactions."""
    size: int = 100
    keys: int = 0
    as_json: bool = False
    """Values as JSON, for a topic that is to become a table; `size` does not count then."""
    partitions: int = 3
    replication: int = 1
    group: bool = False
    consumers: int = 1
    """Members of the group, or readers that each read everything."""
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

    @property
    def is_exact(self) -> bool:
        """A transactional producer is idempotent by definition (KIP-98)."""
        return self.idempotent or bool(self.transactions)


@dataclass(slots=True)
class Progress:
    """Numbers of a run while it goes; each is written by one thread only."""

    sent: int = 0
    acked_left: int = 0
    produce_s: float = 0.0
    committed: int = 0
    aborted: int = 0
    aborted_records: int = 0
    read: dict[str, int] = field(default_factory=dict)
    read_s: dict[str, float] = field(default_factory=dict)
    timed_out: list[str] = field(default_factory=list)


Show = Callable[[Progress], None]


def ledger_path(plan: Plan, process: str, part: int = 0) -> Path:
    """The file of a process; a long run has several, numbered from 1."""
    number = f".{part:05d}" if part else ""
    return plan.ledger / f"{plan.run_name}-{process}{number}{SUFFIX}"


def client_words(plan: Plan, **settings: str) -> str:
    """Settings of a client row; the wall clock is there to place the monotonic times in a day."""
    words = {"client": plan.client, "clock": _boot_id(), "wall_ns": str(time.time_ns()), **settings}
    return " ".join(f"{name}={value}" for name, value in words.items())


def _boot_id() -> str:
    """Names the clock: monotonic times of one boot of one machine can be compared."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
