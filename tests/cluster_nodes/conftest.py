"""One cluster serves a whole file; every test has its own topic and leaves the cluster whole."""

import itertools
from collections.abc import Iterator

import pytest
from tests.cluster_nodes.kit import Cluster

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")).running() as running:
        yield running


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    shared.mend()
    yield shared
    shared.check_logs()


@pytest.fixture
def topic(cluster: Cluster) -> Iterator[str]:
    """A topic of three partitions; gone after the test, so that the next one starts lean."""
    name = f"events-{next(_numbers)}"
    cluster.create(name, 3)
    yield name
    cluster.mend()
    cluster.delete(name)
