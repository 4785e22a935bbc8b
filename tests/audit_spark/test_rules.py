"""The rules on Spark find exactly what the oracle in memory finds, history by history."""

from pathlib import Path
from typing import Any

import pytest
from tests.audit_spark.histories import Found, case, check, grouped, many, units
from tests.audit_spark.kit import history_of

from chronik.audit.anomaly import Policy

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def found_by_spark(spark: Any, path: Path, policy: Policy, block_size: int | None) -> Found:
    from chronik.audit_spark.chosen import Reader
    from chronik.audit_spark.context import context_of
    from chronik.audit_spark.history import history
    from chronik.audit_spark.order import units_of
    from chronik.audit_spark.reduce import Reduced, reduced
    from chronik.audit_spark.rules import judge_history

    reader = Reader(spark, units_of([path]), few_max=0)
    if block_size is None:
        chosen = Reduced(reader.everything())
    else:
        chosen = reduced(reader, policy, block_size, share_max=1.0)
    assert chosen.rows.few is None
    assert (chosen.left_out is None) == (block_size is None), "something must be left out"
    rows = chosen.rows.frame()
    context = context_of(spark, chosen.left_out, rows) if chosen.left_out else None
    found = judge_history(history(rows, context), policy).collect()
    return grouped(
        (history_of(one["topic"] or one["statement"]), one["name"], one["level"], one["statement"])
        for one in found
    )


def test_rules_on_spark_find_what_the_oracle_finds(spark: Any, tmp_path: Path) -> None:
    one = case(tmp_path, units(retried=False) + many(), Policy())
    check(one, found_by_spark(spark, one.path, one.policy, None))


def test_rules_on_spark_find_it_among_screened_blocks(spark: Any, tmp_path: Path) -> None:
    one = case(tmp_path, units(retried=False) + many(), Policy())
    check(one, found_by_spark(spark, one.path, one.policy, 4))


def test_rules_on_spark_know_retries(spark: Any, tmp_path: Path) -> None:
    one = case(tmp_path, units(retried=True), Policy(at_least_once=True))
    check(one, found_by_spark(spark, one.path, one.policy, None))
