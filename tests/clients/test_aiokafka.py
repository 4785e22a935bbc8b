"""aiokafka: the client of asyncio programs."""

import pytest
from tests.clients.adapters.aio import AioKafkaAdmin
from tests.clients.kit import Client
from tests.clients.scenarios import Administration, Library
from tests.servers import Server


class TestAioKafka(Library):
    """AIOKafkaProducer and AIOKafkaConsumer."""

    @pytest.fixture
    def client(self, aiokafka: Client) -> Client:
        return aiokafka


class TestAioKafkaAdmin(Administration):
    """AIOKafkaAdminClient."""

    @pytest.fixture
    def admin(self, server: Server) -> AioKafkaAdmin:
        return AioKafkaAdmin(server.bootstrap)
