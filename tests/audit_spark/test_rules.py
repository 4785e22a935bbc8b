"""The rules on Spark find exactly what the oracle in memory finds, history by history."""

import random
from pathlib import Path
from typing import Any

import pytest
from tests.audit.ledgers import MUTATIONS, clean
from tests.audit.test_no_false_alarms import World
from tests.audit_spark.kit import (
    found_by_oracle,
    history_of,
    merged,
    scenario_histories,
    write,
)

from chronik.audit.anomaly import EXAMPLES_MAX, Policy
from chronik.audit.rows import Row

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def found_by_spark(
    spark: Any, path: Path, policy: Policy, block_size: int | None = None
) -> dict[tuple[str, str, str], Any]:
    from chronik.audit_spark.history import history
    from chronik.audit_spark.order import units_of
    from chronik.audit_spark.reduce import everything, reduced
    from chronik.audit_spark.rules import judge_history

    units = units_of([path])
    if block_size is None:
        chosen = everything(spark, units)
    else:
        chosen = reduced(spark, units, policy, block_size, share_max=1.0)
        assert chosen.context is not None, "something must be left out"
    found: dict[tuple[str, str, str], list[str]] = {}
    for one in judge_history(history(chosen.rows, chosen.context), policy).collect():
        name = history_of(one["topic"] or one["statement"])
        found.setdefault((name, one["name"], one["level"]), []).append(one["statement"])
    return {key: (len(said), sorted(said)) for key, said in found.items()}


def check(
    spark: Any,
    folder: Path,
    histories: list[list[Row]],
    policy: Policy,
    block_size: int | None = None,
) -> None:
    path = write(folder / "all.ledger", merged(histories))
    expected = {
        key: value
        for key, value in found_by_oracle(histories, policy).items()
        if key[1] != "imbalance"
    }
    actual = found_by_spark(spark, path, policy, block_size)
    assert {key: count for key, (count, _) in actual.items()} == {
        key: count for key, (count, _) in expected.items()
    }
    for key, (count, said) in expected.items():
        if count <= EXAMPLES_MAX:
            assert [_bare(one) for one in actual[key][1]] == [_bare(one) for one in said], key


def _bare(statement: str) -> str:
    """Without where a loss happened: replicas of other histories would be asked too."""
    return statement.split(" was never read", maxsplit=1)[0]


@pytest.mark.parametrize("retried", [False, True])
def test_unit_histories_have_the_verdict_of_the_oracle(
    spark: Any, tmp_path: Path, *, retried: bool
) -> None:
    chosen = [rows for _, rows, at_least_once in scenario_histories() if at_least_once == retried]
    assert chosen
    check(spark, tmp_path, chosen, Policy(at_least_once=retried))


def worlds(count: int) -> list[list[Row]]:
    histories = []
    for seed in range(count):
        world = World(seed, compact=seed % 3 == 0)
        for _ in range(60):
            world.step()
        world.finish()
        histories.append(world.rows)
    return histories


def disturbed(rows: list[Row], seed: int) -> list[Row]:
    """Any row is dropped, doubled, moved or changed: wrong in ways that nobody thought of."""
    rng = random.Random(seed)
    rows = list(rows)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(rows))
        row = rows[at]
        match rng.randrange(6):
            case 0:
                del rows[at]
            case 1:
                rows.insert(rng.randrange(len(rows)), row)
            case 2 if row.offset >= 0:
                rows[at] = row._replace(offset=rng.randrange(row.offset + 3))
            case 3 if row.sequence >= 0:
                rows[at] = row._replace(sequence=rng.randrange(row.sequence + 3))
            case 4 if row.begin_ns >= 0:
                rows[at] = row._replace(begin_ns=rng.randrange(2 * row.end_ns + 2))
            case 5 if row.outcome:
                rows[at] = row._replace(outcome=rng.choice(("ok", "fail", "info")))
            case _:
                pass
    return rows


def mutated(count: int, sends: int) -> list[list[Row]]:
    histories = []
    for seed in range(count):
        for mutate, _ in MUTATIONS.values():
            rows = clean(sends, seed=seed, partitions=1 + seed % 3, producers=1 + seed % 2)
            mutate(rows, random.Random(seed))
            histories.append(rows)
    return histories


def test_a_correct_broker_has_the_verdict_of_the_oracle(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, worlds(20), Policy())


def test_mutations_have_the_verdict_of_the_oracle(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, mutated(4, 300), Policy())


def test_disturbed_histories_have_the_verdict_of_the_oracle(spark: Any, tmp_path: Path) -> None:
    histories = [disturbed(rows, seed) for seed, rows in enumerate(worlds(30))]
    histories += [disturbed(clean(80, seed=seed), seed) for seed in range(30)]
    check(spark, tmp_path, histories, Policy())


@pytest.mark.parametrize("block_size", [4, 32])
def test_screened_histories_have_the_verdict_of_the_oracle(
    spark: Any, tmp_path: Path, block_size: int
) -> None:
    histories = mutated(3, 150)
    histories += [disturbed(rows, seed) for seed, rows in enumerate(worlds(25))]
    histories += [disturbed(clean(120, seed=seed), seed) for seed in range(40)]
    check(spark, tmp_path, histories, Policy(), block_size)


def test_screened_unit_histories_have_the_verdict_of_the_oracle(spark: Any, tmp_path: Path) -> None:
    chosen = [rows for _, rows, at_least_once in scenario_histories() if not at_least_once]
    check(spark, tmp_path, chosen, Policy(), 2)
