"""The known defects, what is done around each, and what the audit must say of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from chronik.lab.stage import (
    Action,
    await_reader,
    cut_power_then_read,
    flip_bit_then_read,
    kill_leader,
    pause_replication,
    start_reader,
    start_reader_last,
)

FAILOVER_S_MAX = 12.0
"""Until a consumer whose leader died has found the new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """One entry: `anomaly` and `cause` are expectations, compared with what the audit said."""

    name: str
    title: str
    anomaly: str
    cause: str
    nodes: int = 1
    faults: tuple[str, ...] = ()
    moments: Mapping[int, Action] = field(default_factory=dict)
    reader_waits: bool = False
    """The reader is started by one of the moments."""
    one_address: bool = False
    plan: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the usual workload."""


NONE = Defect(
    name="none",
    title="no defect",
    anomaly="",
    cause="",
    nodes=3,
    plan={"messages": 5_000},
)

CATALOGUE = (
    Defect(
        name="offset-race",
        title="next offset read, awaited, stored",
        anomaly="inconsistent-offsets",
        cause="offset-assigned-twice",
    ),
    Defect(
        name="double-partition-state",
        title="partition state created twice",
        anomaly="inconsistent-offsets",
        cause="partition-state-twice",
    ),
    Defect(
        name="watermark-stored",
        title="watermark stored instead of max",
        anomaly="watermark-regression",
        cause="watermark-regression",
    ),
    Defect(
        name="watermark-is-log-end",
        title="watermark getter returns log end",
        anomaly="inconsistent-offsets",
        cause="served-above-watermark",
        nodes=3,
        faults=("paused-replication",),
        moments={800: pause_replication, 1_200: kill_leader},
        plan={
            "messages": 2_000,
            "partitions": 1,
            "timeout_s": FAILOVER_S_MAX,
            "delivery_timeout_s": 2.0,
            "at_least_once": True,
        },
    ),
    Defect(
        name="watermark-every-5s",
        title="watermark synced every 5 s only",
        anomaly="stall",
        cause="watermark-not-advancing",
        moments={3_000: partial(await_reader, 7.0)},
        plan={"acks": "1", "timeout_s": 8.0},
    ),
    Defect(
        name="no-forwarding",
        title="no forwarding, one bootstrap server",
        anomaly="imbalance",
        cause="leader-rejections",
        nodes=3,
        one_address=True,
        plan={"delivery_timeout_s": 2.0, "at_least_once": True},
    ),
    Defect(
        name="error-as-success",
        title="error answered as success",
        anomaly="lost-write",
        cause="ack-without-append",
        faults=("refusing-disk",),
        plan={"at_least_once": True},
    ),
    Defect(
        name="follower-refuses-data",
        title="follower refuses data before metadata",
        anomaly="stall",
        cause="follower-refuses-data",
        nodes=3,
        moments={3_000: partial(await_reader, 3.5)},
        plan={"acks": "1"},
    ),
    Defect(
        name="ack-before-replication",
        title="ack before replication, leader killed",
        anomaly="lost-write",
        cause="ack-before-replication",
        nodes=3,
        faults=("paused-replication",),
        moments={800: pause_replication, 1_200: kill_leader},
        plan={
            "messages": 2_000,
            "partitions": 1,
            "timeout_s": FAILOVER_S_MAX,
            "at_least_once": True,
        },
    ),
    Defect(
        name="long-poll-asleep",
        title="long poll does not wake",
        anomaly="stall",
        cause="fetch-hanging",
        moments={512: start_reader},
        reader_waits=True,
        plan={"messages": 1_500, "partitions": 1, "fetch_wait_ms": 4_000, "timeout_s": 8.0},
    ),
    Defect(
        name="lost-fsync",
        title="fsync lost, power cut",
        anomaly="lost-write",
        cause="fsync-lost",
        faults=("power-cut",),
        moments={1_200: cut_power_then_read},
        reader_waits=True,
        plan={"messages": 3_000, "at_least_once": True},
    ),
    Defect(
        name="duplicate-on-retry",
        title="retry appended again",
        anomaly="duplicate",
        cause="duplicate-append",
        faults=("lost-answers",),
        plan={"idempotent": True},
    ),
    Defect(
        name="skipped-batch",
        title="fetch skips a batch",
        anomaly="lost-write",
        cause="committed-not-served",
        moments={3_000: start_reader_last},
        reader_waits=True,
    ),
    Defect(
        name="reordered-batches",
        title="batches reordered",
        anomaly="nonmonotonic-send",
        cause="appended-out-of-sequence",
        plan={"partitions": 1},
    ),
    Defect(
        name="bit-flip",
        title="bit flipped on disk",
        anomaly="corrupt",
        cause="damaged-on-disk",
        moments={3_000: flip_bit_then_read},
        reader_waits=True,
    ),
)

BY_NAME = {defect.name: defect for defect in (NONE, *CATALOGUE)}
