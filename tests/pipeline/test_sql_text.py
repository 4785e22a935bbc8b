"""Which tables a query's text names, and which of them at an earlier time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.pipeline.sql_text import (
    AsOf,
    BadQuery,
    for_duckdb,
    names,
    parse_as_of,
    sources,
    system_names,
    tokens,
    without_time_travel,
)

NOON_MS = 1_785_499_200_000


@given(st.text())
def test_tokens_lose_no_character(text: str) -> None:
    assert "".join(one.text for one in tokens(text)) == text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT a, b FROM One, `two` x, three WHERE c IN (d, e)", {"one", "two", "three"}),
        ("SELECT a FROM x JOIN y ON x.a = y.a, z GROUP BY a, b", {"x", "y", "z"}),
        ("SELECT 'from a' FROM (SELECT b, c FROM d) ORDER BY b, c", {"d"}),
        ("VALUES (1, 2)", set()),
    ],
)
def test_sources_are_what_follows_from_and_join(text: str, found: set[str]) -> None:
    assert sources(text) == found


def test_names_in_strings_and_comments_are_no_tables() -> None:
    text = "SELECT 'orders', a -- from payments\n FROM `Bills` /* x */ JOIN \"Other\" ON 1 = 1"
    assert names(text) == {"select", "a", "from", "bills", "join", "other", "on"}


def test_tables_of_the_cluster_are_in_the_schema_chronik() -> None:
    assert system_names("SELECT * FROM chronik.topics, chronik . `lag` WHERE x = chronik") == {
        "topics",
        "lag",
    }


@pytest.mark.parametrize(
    ("text", "written", "told"),
    [
        (
            "SELECT * FROM orders VERSION AS OF 17 o",
            "SELECT * FROM orders__version_17 o",
            {"orders__version_17": ("orders", AsOf(snapshot_id=17))},
        ),
        (
            "SELECT * FROM `Orders` FOR SYSTEM_TIME AS OF '2026-07-31T12:00:00Z', other",
            f"SELECT * FROM orders__at_{NOON_MS}, other",
            {f"orders__at_{NOON_MS}": ("orders", AsOf(moment_ms=NOON_MS))},
        ),
        (
            "FROM orders TIMESTAMP AS OF TIMESTAMP '2026-07-31 14:00+02', orders VERSION AS OF 5",
            f"FROM orders__at_{NOON_MS}, orders__version_5",
            {
                f"orders__at_{NOON_MS}": ("orders", AsOf(moment_ms=NOON_MS)),
                "orders__version_5": ("orders", AsOf(snapshot_id=5)),
            },
        ),
        ("SELECT orders.version AS of FROM orders", None, {}),
        ("SELECT 'orders VERSION AS OF 5' FROM other VERSION AS OF 5", None, {}),
    ],
)
def test_time_travel_becomes_a_view_of_its_own(
    text: str, written: str | None, told: dict[str, tuple[str, AsOf]]
) -> None:
    assert without_time_travel(text, {"orders"}) == (written or text, told)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM orders VERSION AS OF '2026-07-31'",
        "SELECT * FROM orders TIMESTAMP AS OF 17",
        "SELECT * FROM orders TIMESTAMP AS OF now()",
        "SELECT * FROM orders TIMESTAMP AS OF 'yesterday'",
    ],
)
def test_a_time_travel_without_a_time_is_refused(text: str) -> None:
    with pytest.raises(BadQuery):
        without_time_travel(text, {"orders"})


def test_a_time_without_a_zone_is_utc() -> None:
    assert parse_as_of("2026-07-31 12:00") == AsOf(moment_ms=NOON_MS)
    assert str(parse_as_of("2026-07-31")) == "2026-07-31T00:00:00+00:00"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("SELECT offset, t.offset FROM t", 'SELECT "offset", t."offset" FROM t'),
        (
            "SELECT max(offset) FROM t LIMIT 3 OFFSET 5",
            'SELECT max("offset") FROM t LIMIT 3 OFFSET 5',
        ),
        ("SELECT 1 ORDER BY offset OFFSET (2)", 'SELECT 1 ORDER BY "offset" OFFSET (2)'),
        ("SELECT 'offset', \"offset\" FROM t", "SELECT 'offset', \"offset\" FROM t"),
    ],
)
def test_the_column_offset_is_quoted_for_duckdb_and_the_clause_is_not(
    text: str, written: str
) -> None:
    assert for_duckdb(text) == written
