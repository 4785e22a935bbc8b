"""Every row of the anomaly table over one history: the findings of all families together."""

from pyspark.sql import DataFrame

from chronik.audit.anomaly import Policy
from chronik.audit_spark import loss, orders, polls, stalls, transactions, values, watermarks
from chronik.audit_spark.findings import union
from chronik.audit_spark.history import History


def judge_history(history: History, policy: Policy) -> DataFrame:
    """One row per occurrence of an anomaly, except imbalance, which is judged by its counts."""
    return union(
        [
            values.phantoms(history),
            values.corruption(history),
            values.inconsistent_offsets(history),
            values.duplicates(history, policy),
            loss.losses(history),
            *polls.poll_anomalies(history),
            *orders.order_anomalies(history, policy),
            *transactions.read_anomalies(history),
            *transactions.cycle_findings(history, transactions.cycles(history)),
            watermarks.told_epochs(history),
            watermarks.log_epochs(history),
            watermarks.end_regressions(history),
            watermarks.watermark_regressions(history),
            stalls.stalls(history, policy),
        ]
    )
