"""Catalogs by configuration: properties arrive, and what cannot work is said before it is tried."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from chronik.pipeline.catalogs import WarehouseError
from chronik.pipeline.places import access_in, is_remote
from chronik.pipeline.raw_table import RawMode
from chronik.pipeline.sql_plan import View
from chronik.pipeline.tasks import Task
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


def test_tasks_get_what_is_the_stores_and_show_it_nowhere() -> None:
    given = {
        "uri": "https://h",
        "token": "t",
        "s3.secret-access-key": "hidden",
        "client.region": "r",
    }
    access = access_in(given)
    assert access == {"s3.secret-access-key": "hidden", "client.region": "r"}
    work = Task("h:9092", "s3://b/t", 0, RawMode(), access=access)
    view = View("t", "t", "raw", None, None, access=access)
    assert "hidden" not in repr(work) + repr(view)


@pytest.mark.parametrize("place", ["folder", "/a/folder", "file:///a/folder"])
def test_a_folder_is_no_store(place: str) -> None:
    assert not is_remote(place)
    assert is_remote("s3://bucket/folder")


def test_sqlite_may_be_elsewhere(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/elsewhere.db"
    place = Warehouse(tmp_path / "w", {"type": "sql", "uri": uri})
    assert place.catalog.properties["uri"] == uri
    assert (tmp_path / "elsewhere.db").exists()


def test_an_unknown_catalog_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match="cannot be used"):
        Warehouse(tmp_path, {"type": "no-such-catalog"})
