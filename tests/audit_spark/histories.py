"""Histories of every kind, what the oracle finds in them, and how findings are compared."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tests.audit.ledgers import MUTATIONS, clean
from tests.audit.test_no_false_alarms import World
from tests.audit_spark.kit import (
    found_by_oracle,
    history_of,
    merged,
    scenario_histories,
    write,
)

from chronik.audit.anomaly import EXAMPLES_MAX, Findings, Level, Policy
from chronik.audit.rows import Kind, Row, value_of

Found = dict[tuple[str, str, str], tuple[int, list[str]]]
"""Per history, name and level: how many, and what is said of them."""


class All(Findings):
    """Keeps what is said of every occurrence, with the history that it is in."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str, str, str]] = []

    def add(
        self, name: str, statement: str, *rows: Row, level: Level = Level.FAIL, count: int = 1
    ) -> None:
        topics = [row.topic for row in rows if row.topic] or [statement]
        self.said += [(history_of(topics[0]), name, str(level), statement)] * count


def grouped(said: Iterable[tuple[str, str, str, str]]) -> Found:
    found: dict[tuple[str, str, str], list[str]] = {}
    for history, name, level, statement in said:
        found.setdefault((history, name, level), []).append(statement)
    return {key: (len(one), sorted(one)) for key, one in found.items()}


class Case(NamedTuple):
    """Histories in one ledger, and what the oracle finds in each of them alone."""

    path: Path
    policy: Policy
    expected: dict[Any, Any]


def case(folder: Path, histories: list[list[Row]], policy: Policy) -> Case:
    path = write(folder / "all.ledger", merged(histories))
    found = found_by_oracle(histories, policy)
    return Case(path, policy, {key: one for key, one in found.items() if key[1] != "imbalance"})


def check(one: Case, actual: Found) -> None:
    assert {key: count for key, (count, _) in actual.items()} == {
        key: count for key, (count, _) in one.expected.items()
    }
    for key, (count, said) in one.expected.items():
        if count <= EXAMPLES_MAX:
            assert [_bare(text) for text in actual[key][1]] == [_bare(text) for text in said], key


def _bare(statement: str) -> str:
    """Without where a loss happened: replicas of other histories would be asked too."""
    return statement.split(" was never read", maxsplit=1)[0]


def worlds(count: int, first: int = 0) -> list[list[Row]]:
    """What a correct broker did."""
    histories = []
    for seed in range(first, first + count):
        world = World(seed, compact=seed % 3 == 0)
        for _ in range(60):
            world.step()
        world.finish()
        histories.append(world.rows)
    return histories


def disturbed(rows: list[Row], seed: int) -> list[Row]:
    """Any row is dropped, doubled, moved or changed: wrong in ways that nobody thought of.

    Ledgers have one outcome of a value: it does not become that of a value sent elsewhere.
    """
    rng = random.Random(seed)
    while is_sent_twice(found := _disturbed(rows, rng)):
        pass
    return found


def is_sent_twice(rows: list[Row]) -> bool:
    sends = {(value_of(row), row.partition, row.offset) for row in rows if row.kind == Kind.SEND}
    return len({value for value, _, _ in sends}) < len(sends)


def _disturbed(rows: list[Row], rng: random.Random) -> list[Row]:
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


def units(*, retried: bool) -> list[list[Row]]:
    found = [rows for _, rows, at_least_once in scenario_histories() if at_least_once == retried]
    assert found
    return found


def few() -> list[list[Row]]:
    """As `many`, a few of each kind."""
    histories = worlds(3) + mutated(1, 60)
    return histories + [disturbed(rows, seed) for seed, rows in enumerate(worlds(4))]


def many() -> list[list[Row]]:
    """A correct broker, each mutation, and histories wrong in ways that nobody thought of.

    Fewer rows than Spark would compile its plans for.
    """
    histories = worlds(10) + mutated(2, 150)
    histories += [disturbed(rows, seed) for seed, rows in enumerate(worlds(15))]
    return histories + [disturbed(clean(100, seed=seed), seed) for seed in range(20)]
