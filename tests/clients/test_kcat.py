"""kcat: the command line tool, on an older librdkafka."""

import pytest
from tests.clients.adapters.kcat import Kcat
from tests.clients.kit import Client
from tests.clients.scenarios import NewTopic, ProduceConsume
from tests.servers import Server


class TestKcat(ProduceConsume):
    """kcat -P, -C and -Q."""

    @pytest.fixture
    def client(self, kcat: Client) -> Client:
        return kcat

    def test_the_listing_names_broker_and_partitions(
        self, client: Kcat, topic: NewTopic, server: Server
    ) -> None:
        listing = client.metadata(topic(partitions=4))
        assert f"at {server.bootstrap}" in listing
        assert "with 4 partitions:" in listing
