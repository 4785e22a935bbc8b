"""The verdict: every row of the anomaly table, judged exactly, in memory and without side effects.

One broken fact is reported under one name, the most exact one: a value that nobody read is a loss
and not also a skip; values given in the wrong order are nonmonotonic and not also skipped; two
sends of one producer in the wrong order are nonmonotonic-send and not also realtime-order. This is
the oracle that distributed jobs are compared with.
"""

from collections.abc import Iterable
from typing import Any

from chronik.audit.anomaly import Findings, Level, Policy, Verdict
from chronik.audit.history import History
from chronik.audit.loss import find_losses
from chronik.audit.measures import find_imbalance, measure
from chronik.audit.orders import find_order_anomalies
from chronik.audit.polls import find_poll_anomalies
from chronik.audit.rows import Row
from chronik.audit.transactions import find_aborted_reads, find_cycles, find_precommitted_reads
from chronik.audit.values import (
    find_corruption,
    find_duplicates,
    find_inconsistent_offsets,
    find_phantoms,
)
from chronik.audit.watermarks import (
    find_end_regressions,
    find_epoch_regressions,
    find_stalls,
    find_watermark_regressions,
)

_DEFAULT = Policy()


def judge(rows: Iterable[Row], policy: Policy = _DEFAULT) -> Verdict:
    """The verdict on ledgers: rows of one process must be in the order of its program."""
    history = History(rows)
    findings = Findings()
    find_anomalies(history, findings, policy)
    find_imbalance(history, findings, policy)
    return verdict_of(findings, measure(history))


def verdict_of(findings: Findings, measures: dict[str, Any]) -> Verdict:
    anomalies = findings.anomalies()
    return Verdict(not any(one.level == Level.FAIL for one in anomalies), anomalies, measures)


def find_anomalies(history: History, findings: Findings, policy: Policy) -> None:
    """All but imbalance, which is judged by the counts of all rows."""
    find_phantoms(history, findings)
    find_corruption(history, findings)
    find_inconsistent_offsets(history, findings)
    find_duplicates(history, findings, policy)
    find_losses(history, findings)
    find_poll_anomalies(history, findings)
    find_order_anomalies(history, findings, policy)
    find_aborted_reads(history, findings)
    find_precommitted_reads(history, findings)
    find_cycles(history, findings)
    find_epoch_regressions(history, findings)
    find_end_regressions(history, findings)
    find_watermark_regressions(history, findings)
    find_stalls(history, findings, policy)
