"""Catalogs by configuration: properties arrive, and what cannot work is said before it is tried."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from chronik.pipeline.catalogs import WarehouseError
from chronik.pipeline.warehouse import Warehouse

SEEN: dict[str, str] = {}


class Recording(SqlCatalog):
    """A catalog of one's own, by pyiceberg's `py-catalog-impl`."""

    def __init__(self, name: str, **properties: Any) -> None:
        SEEN.update(properties)
        super().__init__(name, **properties)


def test_properties_reach_the_catalog(tmp_path: Path) -> None:
    given = {
        "py-catalog-impl": f"{__name__}.Recording",
        "uri": f"sqlite:///{tmp_path}/other.db",
        "warehouse": f"file://{tmp_path}/tables",
        "s3.region": "eu-central-1",
    }
    Warehouse(tmp_path / "unused", given)
    assert given.items() <= SEEN.items()
    assert not (tmp_path / "unused").exists()


def test_a_bucket_without_a_catalog_is_refused() -> None:
    with pytest.raises(WarehouseError, match="--catalog type=rest"):
        Warehouse("s3://bucket/warehouse")


def test_a_bucket_is_the_catalogs_warehouse(tmp_path: Path) -> None:
    given = {"py-catalog-impl": f"{__name__}.Recording", "uri": f"sqlite:///{tmp_path}/c.db"}
    Warehouse("s3://bucket/warehouse", given)
    assert SEEN["warehouse"] == "s3://bucket/warehouse"


def test_sqlite_may_be_elsewhere(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/elsewhere.db"
    place = Warehouse(tmp_path / "w", {"type": "sql", "uri": uri})
    assert place.catalog.properties["uri"] == uri
    assert (tmp_path / "elsewhere.db").exists()


def test_an_unknown_catalog_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match="cannot be used"):
        Warehouse(tmp_path, {"type": "no-such-catalog"})
