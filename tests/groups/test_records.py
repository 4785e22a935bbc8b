"""The records of `__consumer_offsets` against bytes that Apache Kafka 4.3 wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.groups.fields import Malformed
from chronik.groups.records import (
    GroupMetadataRecord,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitRecord,
    OffsetCommitValue,
    Record,
    decode,
    encode,
)
from chronik.groups.subscription import subscribed_topics

# Read from the topic of a broker after two consumers, one of them static, had joined and committed.
FROM_A_BROKER = {
    "a simple consumer's offset": (
        "0001000673696d706c6500066f726465727300000000",
        "00040000000000000003ffffffff01000001a1e125bd530100109410fa22fcd349bba02ba5cf51a4ea97",
    ),
    "a new group": (
        "0002000762696c6c696e67",
        "0003000000000000ffffffff000001a1e12591f800000000",
    ),
    "a generation of two": (
        "0002000762696c6c696e67",
        (
            "00030008636f6e73756d657200000001000572616e6765002d7374617469632d312d39353866303063622d63"
            "3263392d343437642d616564632d333430333530633337623130000001a1e125a97400000002002d73746174"
            "69632d312d39353866303063622d633263392d343437642d616564632d333430333530633337623130000873"
            "74617469632d310003617070000a2f3132372e302e302e31000493e00000afc80000001c0003000000010006"
            "6f72646572730000000000000000ffffffff00000000001a00000000000100066f7264657273000000010000"
            "00010000000000286170702d62323666363933322d663662372d343062382d383432372d3930306434653935"
            "66303764ffff0003617070000a2f3132372e302e302e31000493e00000afc80000001c00030000000100066f"
            "72646572730000000000000000ffffffff00000000001a00000000000100066f726465727300000001000000"
            "0000000000"
        ),
    ),
    "a member's offset with metadata": (
        "0001000762696c6c696e6700066f726465727300000001",
        (
            "00040000000000000007ffffffff066e6f746500000001a1e125bd090100109410fa22fcd349bba02ba5cf51"
            "a4ea97"
        ),
    ),
    "an offset's tombstone": ("0001000673696d706c6500066f726465727300000000", None),
    "a group's tombstone": ("0002000673696d706c65", None),
}

# Written by Kafka's generated classes, one per version of the value.
OFFSET_BY_VERSION = {
    0: "00000000011f71fb04cb00036ec3a90000018bcfe56800",
    1: "00010000011f71fb04cb00036ec3a90000018bcfe568000000018bcfe58f0f",
    2: "00020000011f71fb04cb00036ec3a90000018bcfe56800",
    3: "00030000011f71fb04cb0000000700036ec3a90000018bcfe56800",
    4: "00040000011f71fb04cb00000007046ec3a90000018bcfe5680000",
}
_GROUP_HEAD = "0008636f6e73756d657200000003000572616e676500036d2d31"
_MEMBER_END = "0000afc8000000030001020000000109"
GROUP_BY_VERSION = {
    0: f"0000{_GROUP_HEAD}0000000200036d2d3100016300092f31302e302e302e31{_MEMBER_END}"
    "00036d2d3200000000000017700000000000000000",
    1: f"0001{_GROUP_HEAD}0000000200036d2d3100016300092f31302e302e302e31000493e0{_MEMBER_END}"
    "00036d2d320000000000001770000017700000000000000000",
    2: f"0002{_GROUP_HEAD}0000018bcfe568000000000200036d2d3100016300092f31302e302e302e31"
    f"000493e0{_MEMBER_END}00036d2d320000000000001770000017700000000000000000",
    3: f"0003{_GROUP_HEAD}0000018bcfe568000000000200036d2d310003692d3100016300092f31302e302e302e31"
    f"000493e0{_MEMBER_END}00036d2d32ffff0000000000001770000017700000000000000000",
    4: "000409636f6e73756d6572000000030672616e6765046d2d310000018bcfe5680003046d2d3104692d310263"
    "0a2f31302e302e302e31000493e00000afc804000102020900046d2d32000101000017700000177001010000",
}
OFFSET_KEY = bytes.fromhex("0001000167000174") + bytes(4)
GROUP_KEY = bytes.fromhex("0002000167")


def read(key: bytes, value: bytes | None) -> Record:
    record = decode(key, value)
    assert record is not None
    return record


@pytest.mark.parametrize("name", FROM_A_BROKER)
def test_bytes_of_a_broker_are_read_and_written_identically(name: str) -> None:
    key_hex, value_hex = FROM_A_BROKER[name]
    key = bytes.fromhex(key_hex)
    value = None if value_hex is None else bytes.fromhex(value_hex)
    assert encode(read(key, value)) == (key, value)


@pytest.mark.parametrize("version", OFFSET_BY_VERSION)
def test_every_offset_version_is_kafkas(version: int) -> None:
    value = bytes.fromhex(OFFSET_BY_VERSION[version])
    record = read(OFFSET_KEY, value)
    assert isinstance(record, OffsetCommitRecord)
    assert record.value == OffsetCommitValue(
        offset=1234567890123,
        leader_epoch=7 if version >= 3 else -1,
        metadata="né",
        commit_timestamp_ms=1700000000000,
        expire_timestamp_ms=1700000009999 if version == 1 else -1,
    )
    assert encode(record, version) == (OFFSET_KEY, value)


def test_offsets_are_written_in_the_newest_version_unless_a_client_states_a_retention() -> None:
    for value in (
        OffsetCommitValue(5, 7, "näher", 1700000000000, topic_id=bytes(range(16))),
        OffsetCommitValue(2**62, -1, "m" * 300, 0),
    ):
        record = OffsetCommitRecord("grüppe", "topic", 12, value)
        assert encode(record) == encode(record, 4)
        assert decode(*encode(record)) == record
    kept = OffsetCommitRecord("g", "t", 0, OffsetCommitValue(5, expire_timestamp_ms=9))
    assert encode(kept) == encode(kept, 1)


@pytest.mark.parametrize("version", GROUP_BY_VERSION)
def test_every_group_version_is_kafkas(version: int) -> None:
    value = bytes.fromhex(GROUP_BY_VERSION[version])
    record = read(GROUP_KEY, value)
    assert isinstance(record, GroupMetadataRecord)
    assert record.value is not None
    first, second = record.value.members
    assert (record.value.generation, record.value.protocol, first.member_id) == (3, "range", "m-1")
    assert first.group_instance_id == ("i-1" if version >= 3 else None)
    assert first.rebalance_timeout_ms == (300000 if version >= 1 else 45000)
    assert (second.subscription, second.assignment) == (b"", b"")
    assert encode(record, version) == (GROUP_KEY, value)


def test_the_subscription_a_client_sent_names_its_topics() -> None:
    key, value = FROM_A_BROKER["a generation of two"]
    assert value is not None
    record = read(bytes.fromhex(key), bytes.fromhex(value))
    assert isinstance(record, GroupMetadataRecord)
    assert record.value is not None
    assert [subscribed_topics(m.subscription) for m in record.value.members] == [
        frozenset({"orders"}),
        frozenset({"orders"}),
    ]


def test_keys_of_other_protocols_are_skipped() -> None:
    assert decode(bytes.fromhex("0003000167"), b"\x00\x00") is None


def test_unknown_value_versions_and_torn_values_are_refused() -> None:
    with pytest.raises(Malformed):
        decode(OFFSET_KEY, b"\x00\x05" + bytes(30))
    with pytest.raises(Malformed):
        decode(GROUP_KEY, bytes.fromhex(GROUP_BY_VERSION[3])[:-1])


def test_an_unknown_tagged_field_is_skipped() -> None:
    value = bytes.fromhex(OFFSET_BY_VERSION[4])[:-1] + bytes.fromhex("01050201ff")
    record = read(OFFSET_KEY, value)
    assert isinstance(record, OffsetCommitRecord)
    assert record.value is not None
    assert record.value.offset == 1234567890123


@given(st.binary(max_size=60))
def test_no_bytes_read_as_a_subscription_by_accident_of_a_crash(data: bytes) -> None:
    subscribed_topics(data)


@given(st.binary(max_size=80), st.sampled_from((OFFSET_KEY, GROUP_KEY)))
def test_no_value_breaks_the_reader(data: bytes, key: bytes) -> None:
    try:
        decode(key, data)
    except Malformed:
        return


texts = st.text(max_size=20)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
blobs = st.binary(max_size=200)
offset_values = st.builds(
    OffsetCommitValue,
    int64s,
    int32s,
    texts,
    int64s,
    st.just(-1),
    st.binary(min_size=16, max_size=16),
)
members = st.builds(
    MemberMetadata, texts, texts, texts, int32s, int32s, blobs, blobs, st.none() | texts
)
group_values = st.builds(
    GroupMetadataValue,
    texts,
    int32s,
    st.none() | texts,
    st.none() | texts,
    int64s,
    st.lists(members, max_size=4).map(tuple),
)
records = st.builds(
    OffsetCommitRecord, texts, texts, int32s, st.none() | offset_values
) | st.builds(GroupMetadataRecord, texts, st.none() | group_values)


@given(records, st.sampled_from((3, 4)))
def test_what_is_written_is_read_back(record: Record, version: int) -> None:
    is_offset = isinstance(record, OffsetCommitRecord)
    assert decode(*encode(record, 4 if is_offset else version)) == record
