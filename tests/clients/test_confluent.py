"""confluent-kafka, on librdkafka: the client most people meet first."""

import pytest
from tests.clients.adapters.confluent import ConfluentAdmin
from tests.clients.kit import Client
from tests.clients.scenarios import DeepAdministration, Library
from tests.servers import Server


class TestConfluent(Library):
    """Producer and Consumer."""

    @pytest.fixture
    def client(self, confluent: Client) -> Client:
        return confluent


class TestConfluentAdmin(DeepAdministration):
    """AdminClient."""

    @pytest.fixture
    def admin(self, server: Server) -> ConfluentAdmin:
        return ConfluentAdmin(server.bootstrap)
