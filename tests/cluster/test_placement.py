"""Where new replicas go: only brokers that exist, balanced, racks apart."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.cluster.image import Broker
from chronik.cluster.placement import PlacementError, place


def broker(number: int, rack: str | None = None) -> Broker:
    return Broker(number, 1, bytes(16), (), rack, fenced=False)


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=9, unique=True),
    st.integers(1, 60),
    st.integers(1, 9),
    st.integers(0, 10**6),
)
def test_fm33_replicas_are_distinct_brokers_that_exist_and_leaders_are_balanced(
    ids: list[int], partitions: int, factor: int, start: int
) -> None:
    factor = min(factor, len(ids))
    rows = place([broker(one) for one in ids], partitions, factor, start)
    assert len(rows) == partitions
    assert all(len(set(row)) == factor and set(row) <= set(ids) for row in rows)
    leaders = Counter(row[0] for row in rows)
    counts = [leaders[one] for one in ids]
    assert max(counts) - min(counts) <= 1
    assert rows == place([broker(one) for one in reversed(ids)], partitions, factor, start)


@given(
    st.lists(st.sampled_from("abc"), min_size=3, max_size=9),
    st.integers(1, 40),
    st.integers(1, 4),
    st.integers(0, 100),
)
def test_replicas_use_as_many_racks_as_they_can(
    racks: list[str], partitions: int, factor: int, start: int
) -> None:
    brokers = [broker(number, rack) for number, rack in enumerate(racks)]
    factor = min(factor, len(brokers))
    rows = place(brokers, partitions, factor, start)
    possible = min(factor, len(set(racks)))
    assert all(len({racks[one] for one in row}) == possible for row in rows)


def test_followers_are_balanced_too() -> None:
    rows = place([broker(one) for one in range(6)], 60, 3, 0)
    counts = Counter(one for row in rows for one in row)
    assert set(counts.values()) == {30}


def test_a_lost_brokers_partitions_spread_over_all_others() -> None:
    rows = place([broker(one) for one in range(5)], 40, 3, 0)
    heirs = Counter(row[1] for row in rows if row[0] == 0)
    assert len(heirs) == 4


def test_partitions_added_later_go_on_where_the_first_stopped() -> None:
    brokers = [broker(one) for one in range(4)]
    assert place(brokers, 10, 2, 3) == place(brokers, 6, 2, 3) + place(brokers, 4, 2, 3, 6)


def test_too_few_brokers_says_how_many_there_are() -> None:
    with pytest.raises(PlacementError, match=r"factor of 3 cannot be reached because only 2 "):
        place([broker(1), broker(2)], 1, 3, 0)
