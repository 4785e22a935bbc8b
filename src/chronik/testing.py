"""A pytest plugin: the fixture `chronik_broker`, for anyone who today starts a JVM to test.

Installed with Chronik, it needs no registration. It loads the broker only when a test asks for it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from chronik.embedded import EmbeddedBroker


@pytest.fixture(scope="session")
def chronik_broker() -> "Iterator[EmbeddedBroker]":
    """A Kafka-compatible broker for the whole session; give clients `chronik_broker.bootstrap`."""
    from chronik.embedded import embedded  # noqa: PLC0415 - a plugin loads in every session

    with embedded() as broker:
        yield broker
