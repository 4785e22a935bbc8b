"""The catalog of a warehouse: sqlite in the folder itself, or any that pyiceberg knows."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NotInstalledError, RESTError
from pyiceberg.utils.config import Config
from sqlalchemy.exc import SQLAlchemyError

from chronik.pipeline.places import is_remote

NAME = "chronik"
"""Of the catalog in pyiceberg's own configuration: a file, or PYICEBERG_CATALOG__CHRONIK__..."""
NAMESPACE = "chronik"
CATALOG_FILE = "catalog.db"
ATTEMPTS_MAX = 3
LOCK_SECONDS_MAX = 30
"""A commit waits so long for another process that writes to the catalog's database."""


class WarehouseError(Exception):
    """The catalog or the place of the tables cannot be used as it is configured."""


def catalog_of(location: str, properties: Mapping[str, str]) -> Catalog:
    """The catalog by its properties, with the namespace of our tables."""
    settings = _catalog_settings(location, properties)
    for attempt in range(ATTEMPTS_MAX):
        try:
            return _opened(settings)
        except (NotInstalledError, ValueError) as error:
            raise WarehouseError(f"the catalog cannot be used: {error}") from error
        except (SQLAlchemyError, OSError, RESTError) as error:
            # Two processes that make the same catalog: the later one finds the other's tables.
            if isinstance(error, SQLAlchemyError) and attempt + 1 < ATTEMPTS_MAX:
                continue
            told = str(error).splitlines()[0]
            where = settings.get("uri", location)
            raise WarehouseError(f"the catalog at {where} cannot be used: {told}") from error
    raise AssertionError("unreachable")


def _opened(settings: Mapping[str, str]) -> Catalog:
    catalog = load_catalog(NAME, **settings)
    with contextlib.suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(NAMESPACE)
    return catalog


def _catalog_settings(location: str, given: Mapping[str, str]) -> dict[str, str]:
    """sqlite in the folder itself; else what pyiceberg's documentation calls catalog properties."""
    remote = is_remote(location)
    if remote and not (given or Config().get_catalog_config(NAME)):
        raise WarehouseError(
            f"'{location}' is no folder of this machine, so a catalog must keep its tables: for "
            "example --catalog type=rest --catalog uri=https://HOST, or --catalog type=glue"
        )
    if remote:
        return {"warehouse": location} | dict(given)
    if given and given.get("type") != "sql":
        return dict(given)  # a REST catalog or Glue knows where its tables are
    folder = Path(location.removeprefix("file://")).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise WarehouseError(f"the warehouse '{location}' cannot be used: {reason}") from error
    uri = f"sqlite:///{folder / CATALOG_FILE}?timeout={LOCK_SECONDS_MAX}"
    return {"type": "sql", "uri": uri, "warehouse": f"file://{folder}"} | dict(given)
