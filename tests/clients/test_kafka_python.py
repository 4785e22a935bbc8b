"""kafka-python: the protocol in plain Python."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.clients.adapters.kafka_python import KafkaPythonAdmin
from tests.clients.kit import Client, Record
from tests.clients.scenarios import DeepAdministration, Library, NewTopic
from tests.servers import Server


class TestKafkaPython(Library):
    """KafkaProducer and KafkaConsumer."""

    @pytest.fixture
    def client(self, kafka_python: Client) -> Client:
        return kafka_python


class TestKafkaPythonAdmin(DeepAdministration):
    """KafkaAdminClient."""

    @pytest.fixture
    def admin(self, server: Server) -> Iterator[KafkaPythonAdmin]:
        admin = KafkaPythonAdmin(server.bootstrap)
        yield admin
        admin.client.close()

    def test_log_dirs_tell_the_size_of_a_replica(
        self, admin: KafkaPythonAdmin, topic: NewTopic, confluent: Client
    ) -> None:
        name = topic()
        confluent.produce(name, [Record(b"x" * 10_000)])
        sizes = [
            partition["partition_size"]
            for broker in admin.client.describe_log_dirs()
            for log_dir in broker["log_dirs"]
            for found in log_dir["topics"]
            for partition in found["partitions"]
            if found["name"] == name
        ]
        assert len(sizes) == 1
        assert 10_000 < sizes[0] < 11_000

    def test_topic_partitions_are_described_page_by_page(
        self, admin: KafkaPythonAdmin, topic: NewTopic
    ) -> None:
        name = topic(partitions=5)
        found: Any = admin.client.describe_topic_partitions([name], response_partition_limit=2)
        (described,) = found["topics"]
        assert [each["partition_index"] for each in described["partitions"]] == [0, 1]
        assert found["next_cursor"]["topic_name"] == name
        assert found["next_cursor"]["partition_index"] == 2
