"""The options of the source, and how ranges are cut into tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.pipeline.fetch import OffsetRange
from chronik.pipeline.offsets import BadOption, from_json, read_options, split, to_json
from chronik.pipeline.stream_source import limited

GOOD = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}


@pytest.mark.parametrize(
    "bad",
    [
        {"subscribe": "a"},
        {"kafka.bootstrap.servers": "h:1"},
        GOOD | {"assign": "{}"},
        GOOD | {"columns": "key,nothing"},
        GOOD | {"kafka.isolation.level": "read_some"},
        GOOD | {"failOnDataLoss": "perhaps"},
        GOOD | {"maxOffsetsPerTrigger": "0"},
        GOOD | {"minPartitions": "many"},
        GOOD | {"maxTriggerDelay": "soon"},
        GOOD | {"startingOffsetsByTimestampStrategy": "guess"},
        GOOD | {"kafka.security.protocol": "SASL_SSL"},
    ],
)
def test_bad_options_are_refused(bad: dict[str, str]) -> None:
    with pytest.raises(BadOption):
        read_options(bad)


def test_names_are_read_in_any_case() -> None:
    options = read_options(GOOD | {"STARTINGOFFSETS": "earliest", "includeheaders": "TRUE"})
    assert options.starting == ("offsets", "earliest")
    assert options.columns[-1] == "headers"


def test_durations_and_limits_are_read_as_spark_writes_them() -> None:
    given = {"maxTriggerDelay": "2m", "minOffsetsPerTrigger": "5", "maxRecordsPerPartition": "9"}
    options = read_options(GOOD | given | {"segments": "/a, /b"})
    assert options.max_trigger_delay_s == 120
    assert options.min_offsets_per_trigger == 5
    assert options.max_records_per_partition == 9
    assert options.segments == ("/a", "/b")


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 1000)), max_size=5),
    st.integers(0, 9),
    st.none() | st.integers(1, 300),
)
def test_a_split_covers_the_ranges_once(
    sizes: list[tuple[int, int]], pieces: int, most: int | None
) -> None:
    ranges = [OffsetRange("t", i, start, start + size) for i, (start, size) in enumerate(sizes)]
    cut = split(ranges, pieces, most)
    assert all(one.end - one.start <= (most or 1 << 62) for one in cut)
    covered = [(one.partition, offset) for one in cut for offset in range(one.start, one.end)]
    wanted = [(one.partition, offset) for one in ranges for offset in range(one.start, one.end)]
    assert covered == wanted
    assert all(one.end > one.start for one in cut)


@given(st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), st.integers(0, 99)))
def test_offsets_as_json_and_back(offsets: dict[tuple[str, int], int]) -> None:
    assert from_json(to_json(offsets)) == offsets


@given(
    st.dictionaries(st.tuples(st.just("t"), st.integers(0, 4)), st.integers(0, 1000), min_size=1),
    st.integers(1, 500),
)
def test_a_limit_takes_something_of_every_lag(end: dict[tuple[str, int], int], most: int) -> None:
    begin = dict.fromkeys(end, 0)
    taken = limited(begin, end, most)
    assert sum(taken.values()) <= most + len(end)
    assert all(0 < taken[one] <= end[one] for one in end if end[one])
