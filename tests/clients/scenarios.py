"""What every client library must be able to do.

A test file per library derives from these classes and gives the fixtures `client` and `admin`.
"""

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.clients.adapters.confluent import Confluent
from tests.clients.kit import (
    ALL_ACKS,
    CODECS,
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_TOPIC_EXCEPTION,
    MESSAGE_TOO_LARGE,
    OFFSET_OUT_OF_RANGE,
    QUIET_SECONDS,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    Acks,
    Admin,
    Client,
    Codec,
    DeepAdmin,
    Record,
    RefusedError,
    by_partition,
    eventually,
    payload,
)
from tests.servers import Server

NewTopic = Callable[..., str]
MIB = 1 << 20
EARLY_MS = 1_700_000_000_000
"""A time in 2023, for records that carry their own."""


class ProduceConsume:
    """Records go in and come back the same."""

    @pytest.mark.parametrize("codec", CODECS)
    def test_every_codec_round_trips(self, client: Client, topic: NewTopic, codec: Codec) -> None:
        name = topic()
        sent = [Record(payload(n), key=b"k%d" % n) for n in range(50)]
        assert client.produce(name, sent, codec=codec) == list(range(50))
        got = client.consume(name, 50)
        assert [(each.offset, each.key, each.value) for each in got] == [
            (n, record.key, record.value) for n, record in enumerate(sent)
        ]

    @pytest.mark.parametrize("acks", ALL_ACKS)
    def test_every_acks_level_delivers(self, client: Client, topic: NewTopic, acks: Acks) -> None:
        name = topic()
        client.produce(name, [Record(b"one"), Record(b"two")], acks=acks)
        assert [each.value for each in client.consume(name, 2)] == [b"one", b"two"]
        assert client.offsets(name) == (0, 2)

    def test_headers_arrive_in_order_with_repeated_names(
        self, client: Client, topic: NewTopic
    ) -> None:
        name = topic()
        headers = (("a", b"1"), ("b", b"2"), ("a", b"3"))
        client.produce(name, [Record(b"v", key=b"k", headers=headers)])
        (got,) = client.consume(name, 1)
        assert got.headers == headers

    def test_a_null_value_is_not_an_empty_one(self, client: Client, topic: NewTopic) -> None:
        name = topic()
        client.produce(name, [Record(None, key=b"deleted"), Record(b"v", key=None)])
        got = client.consume(name, 2)
        assert [(each.key, each.value) for each in got] == [(b"deleted", None), (None, b"v")]

    def test_an_empty_topic_has_offsets_zero_and_no_records(
        self, client: Client, topic: NewTopic
    ) -> None:
        name = topic()
        assert client.offsets(name) == (0, 0)
        assert client.consume(name, 1, seconds=QUIET_SECONDS) == []
        assert client.offset_at(name, EARLY_MS) is None

    def test_a_record_of_one_mebibyte_fits_where_the_topic_allows_it(
        self, client: Client, topic: NewTopic
    ) -> None:
        name = topic(**{"max.message.bytes": 2 * MIB})
        value = b"x" * MIB
        assert client.produce(name, [Record(value)]) == [0]
        (got,) = client.consume(name, 1)
        assert got.value == value

    def test_a_record_above_the_default_limit_is_refused(
        self, client: Client, topic: NewTopic
    ) -> None:
        name = topic()
        with pytest.raises(RefusedError) as refused:
            client.produce(name, [Record(b"x" * (MIB + 100))])
        assert refused.value.code == MESSAGE_TOO_LARGE
        assert client.offsets(name) == (0, 0)
        client.produce(name, [Record(b"small")])
        assert client.offsets(name) == (0, 1)

    def test_reading_starts_at_the_asked_offset(self, client: Client, topic: NewTopic) -> None:
        name = topic()
        client.produce(name, [Record(payload(n)) for n in range(20)])
        got = client.consume(name, 5, start=15)
        assert [each.offset for each in got] == [15, 16, 17, 18, 19]
        assert got[0].value == payload(15)

    def test_many_requests_keep_the_order(self, client: Client, topic: NewTopic) -> None:
        name = topic()
        for start in range(0, 50, 10):
            sent = [Record(payload(n)) for n in range(start, start + 10)]
            assert client.produce(name, sent) == list(range(start, start + 10))
        got = client.consume(name, 50)
        assert [each.value for each in got] == [payload(n) for n in range(50)]


class Library(ProduceConsume):
    """What goes further than a command line tool."""

    def test_timestamps_are_kept_and_found(self, client: Client, topic: NewTopic) -> None:
        name = topic()
        times = [EARLY_MS + 1000 * n for n in range(10)]
        client.produce(name, [Record(b"v", timestamp_ms=time) for time in times])
        assert [each.timestamp_ms for each in client.consume(name, 10)] == times
        assert client.offset_at(name, times[4]) == 4
        assert client.offset_at(name, times[4] + 1) == 5
        assert client.offset_at(name, 1) == 0
        assert client.offset_at(name, times[-1] + 1) is None

    def test_empty_and_null_parts_are_told_apart(self, client: Client, topic: NewTopic) -> None:
        name = topic()
        sent = [Record(b"", key=b""), Record(b"", key=None), Record(None, key=b"")]
        if client.null_key_and_value:
            sent.append(Record(None, key=None))
        client.produce(name, sent)
        got = client.consume(name, len(sent))
        assert [(each.key, each.value) for each in got] == [(r.key, r.value) for r in sent]

    def test_a_header_without_a_value_stays_so(self, client: Client, topic: NewTopic) -> None:
        if not client.null_header_value:
            pytest.skip(f"{client.name} does not send headers without a value")
        name = topic()
        headers = (("null", None), ("empty", b""))
        client.produce(name, [Record(b"v", headers=headers)])
        assert client.consume(name, 1)[0].headers == headers

    def test_binary_data_passes_unchanged(self, client: Client, topic: NewTopic) -> None:
        name = topic()
        every_byte = bytes(range(256))
        client.produce(name, [Record(every_byte, key=every_byte, headers=(("h", every_byte),))])
        (got,) = client.consume(name, 1)
        assert (got.key, got.value, got.headers) == (every_byte, every_byte, (("h", every_byte),))

    def test_many_partitions_each_keep_their_order(self, client: Client, topic: NewTopic) -> None:
        name = topic(partitions=12)
        sent = [Record(payload(n, 40), partition=n % 12) for n in range(240)]
        offsets = client.produce(name, sent)
        assert offsets == [n // 12 for n in range(240)]
        got = by_partition(client.consume(name, 240, partitions=range(12)))
        for partition in range(12):
            assert [each.offset for each in got[partition]] == list(range(20))
            expected = [payload(n, 40) for n in range(partition, 240, 12)]
            assert [each.value for each in got[partition]] == expected

    @pytest.mark.parametrize("codec", ["none", "lz4"])
    def test_an_idempotent_producer_delivers_once(
        self, client: Client, topic: NewTopic, codec: Codec
    ) -> None:
        name = topic(partitions=2)
        sent = [Record(payload(n), partition=n % 2) for n in range(200)]
        client.produce(name, sent, codec=codec, idempotent=True)
        assert [client.offsets(name, partition) for partition in (0, 1)] == [(0, 100), (0, 100)]
        got = client.consume(name, 100, partitions=[1])
        assert [each.value for each in got] == [payload(n) for n in range(1, 200, 2)]

    def test_reading_beyond_the_end_is_out_of_range(self, client: Client, topic: NewTopic) -> None:
        name = topic()
        client.produce(name, [Record(b"v")])
        with pytest.raises(RefusedError) as refused:
            client.consume(name, 1, start=100, seconds=5)
        assert refused.value.code in (OFFSET_OUT_OF_RANGE, -1, -140)

    def test_producing_to_an_unknown_topic_creates_it(self, client: Client) -> None:
        name = f"auto-{uuid.uuid4().hex[:12]}"
        assert client.produce(name, [Record(b"first")]) == [0]
        assert client.consume(name, 1)[0].value == b"first"

    def test_a_waiting_reader_gets_what_is_written_then(
        self, client: Client, topic: NewTopic, server: Server
    ) -> None:
        name = topic()
        writer = Confluent(server.bootstrap)
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(client.consume, name, 2)
            assert writer.produce(name, [Record(b"one")]) == [0]
            assert writer.produce(name, [Record(b"two")]) == [1]
            assert [each.value for each in reading.result()] == [b"one", b"two"]
        writer.close()


class Administration:
    """Topics, partitions, settings, records, cluster."""

    def test_a_topic_is_created_listed_and_deleted(self, admin: Admin) -> None:
        name = f"admin-{uuid.uuid4().hex[:12]}"
        admin.create_topic(name, partitions=3)
        assert eventually(lambda: name in admin.topics())
        assert sorted(admin.partitions(name)) == [0, 1, 2]
        assert set(admin.partitions(name).values()) <= set(admin.cluster().brokers)
        admin.delete_topic(name)
        assert eventually(lambda: name not in admin.topics())

    def test_fm04_a_topic_is_not_created_twice(self, admin: Admin, topic: NewTopic) -> None:
        name = topic()
        with pytest.raises(RefusedError) as refused:
            admin.create_topic(name)
        assert refused.value.code == TOPIC_ALREADY_EXISTS

    @pytest.mark.parametrize("name", [".", "..", "a" * 250, "bad/name", "späce"])
    def test_fm04_a_bad_name_is_refused(self, admin: Admin, name: str) -> None:
        with pytest.raises(RefusedError) as refused:
            admin.create_topic(name)
        assert refused.value.code == INVALID_TOPIC_EXCEPTION

    def test_fm04_a_bad_setting_is_refused(self, admin: Admin) -> None:
        name = f"admin-{uuid.uuid4().hex[:12]}"
        with pytest.raises(RefusedError) as refused:
            admin.create_topic(name, configs={"retention.ms": "soon"})
        assert refused.value.code == INVALID_CONFIG
        assert name not in admin.topics()

    def test_deleting_an_unknown_topic_is_refused(self, admin: Admin) -> None:
        with pytest.raises(RefusedError) as refused:
            admin.delete_topic(f"none-{uuid.uuid4().hex[:12]}")
        assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION

    def test_a_deleted_topic_starts_anew(self, admin: Admin, confluent: Client) -> None:
        name = f"admin-{uuid.uuid4().hex[:12]}"
        admin.create_topic(name)
        assert eventually(lambda: name in admin.topics())
        confluent.produce(name, [Record(b"old")])
        admin.delete_topic(name)
        assert eventually(lambda: name not in admin.topics())
        admin.create_topic(name)
        assert eventually(lambda: name in admin.topics())
        assert confluent.produce(name, [Record(b"new")]) == [0]

    def test_partitions_are_added_never_removed(self, admin: Admin, topic: NewTopic) -> None:
        name = topic(partitions=2)
        admin.create_partitions(name, 5)
        assert eventually(lambda: len(admin.partitions(name)) == 5)
        with pytest.raises(RefusedError) as refused:
            admin.create_partitions(name, 3)
        assert refused.value.code == INVALID_PARTITIONS

    def test_settings_are_read_and_changed(self, admin: Admin, topic: NewTopic) -> None:
        name = topic(**{"retention.ms": 12345})
        assert admin.config(name)["retention.ms"] == "12345"
        assert admin.config(name)["cleanup.policy"] == "delete"
        admin.alter_config(name, "retention.ms", "54321")
        assert eventually(lambda: admin.config(name)["retention.ms"] == "54321")

    def test_a_bad_change_of_a_setting_is_refused(self, admin: Admin, topic: NewTopic) -> None:
        name = topic()
        with pytest.raises(RefusedError) as refused:
            admin.alter_config(name, "cleanup.policy", "burn")
        assert refused.value.code == INVALID_CONFIG
        assert admin.config(name)["cleanup.policy"] == "delete"

    def test_fm27_deleted_records_are_gone(
        self, admin: Admin, topic: NewTopic, confluent: Client
    ) -> None:
        name = topic()
        confluent.produce(name, [Record(payload(n)) for n in range(10)])
        assert admin.delete_records(name, before=4) == 4
        assert confluent.offsets(name) == (4, 10)
        assert [each.offset for each in confluent.consume(name, 6, start=4)] == list(range(4, 10))
        assert admin.delete_records(name, before=-1) == 10
        assert confluent.offsets(name) == (10, 10)
        with pytest.raises(RefusedError) as refused:
            admin.delete_records(name, before=11)
        assert refused.value.code == OFFSET_OUT_OF_RANGE

    def test_fm14_the_cluster_names_its_address(self, admin: Admin, server: Server) -> None:
        cluster = admin.cluster()
        assert cluster.cluster_id
        assert list(cluster.brokers.values()) == [server.bootstrap]
        assert cluster.controller in cluster.brokers


class DeepAdministration(Administration):
    """What only some libraries offer."""

    def test_fm11_offsets_are_listed_by_every_kind_of_time(
        self, admin: DeepAdmin, topic: NewTopic, confluent: Client
    ) -> None:
        name = topic()
        times = [EARLY_MS + n for n in (0, 500, 100, 400)]
        for time in times:
            confluent.produce(name, [Record(b"v", timestamp_ms=time)])
        assert admin.list_offset(name, "earliest")[0] == 0
        assert admin.list_offset(name, "latest")[0] == 4
        assert admin.list_offset(name, "max_timestamp") == (1, times[1])
        assert admin.list_offset(name, str(times[2])) == (1, times[1])
        assert admin.list_offset(name, str(times[0])) == (0, times[0])
        assert admin.list_offset(name, str(times[1] + 1))[0] == -1

    def test_fm11_an_empty_topic_has_no_latest_time(
        self, admin: DeepAdmin, topic: NewTopic
    ) -> None:
        name = topic()
        assert admin.list_offset(name, "max_timestamp") == (-1, -1)
        assert admin.list_offset(name, "earliest")[0] == 0
