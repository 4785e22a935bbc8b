"""New topics for tests, ready to be written to."""

import time
import uuid
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

SECONDS_MAX = 30.0


class TopicMaker:
    """Creates a topic and waits until each of its partitions has a leader that answers."""

    def __init__(self, bootstrap: str) -> None:
        self._client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def __call__(self, partitions: int = 1, **configs: object) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        config = {key: str(value) for key, value in configs.items()}
        asked = NewTopic(name, partitions, 1, config=config)
        self._client.create_topics([asked], request_timeout=SECONDS_MAX)[name].result()
        limit = time.monotonic() + SECONDS_MAX
        while not self._served(name, partitions):
            assert time.monotonic() < limit, f"{name} has no leader"
            time.sleep(0.01)
        return name

    def _served(self, name: str, partitions: int) -> bool:
        earliest: Any = OffsetSpec
        asked = {TopicPartition(name, n): earliest.earliest() for n in range(partitions)}
        try:
            for found in self._client.list_offsets(asked, request_timeout=2).values():
                found.result()
        except KafkaException:
            return False
        return True
