"""Runs of the lab that take long are for `--soak` (or CHRONIK_SOAK=1)."""

import pytest
from tests.faults.nodes import is_soak


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("soak") and not is_soak(config):
            item.add_marker(pytest.mark.skip(reason="long: CHRONIK_SOAK=1 runs it"))
