"""Groups live where Kafka puts them, so that a topic moved between brokers keeps its meaning."""

import pytest

from chronik.groups.placement import partition_for


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("billing", 9),
        ("simple", 26),
        ("", 0),
        ("reports-é", 3),
        ("a-very-long-group-name-0123456789", 9),
        ("😀group", 32),
        ("polygenelubricants", 0),  # its hash is the smallest integer
    ],
)
def test_the_partition_is_that_of_javas_hash(group_id: str, partition: int) -> None:
    assert partition_for(group_id, 50) == partition
