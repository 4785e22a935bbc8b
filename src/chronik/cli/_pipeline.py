"""What the Spark commands share: options, and errors that say what to do."""

import functools
import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from chronik.cli._output import note, quiet_end

if TYPE_CHECKING:
    from chronik.pipeline.tables import Tables

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
PY_FILES = "CHRONIK_PY_FILES"
DEFAULT_WAREHOUSE = "chronik-warehouse"


def warehouse_option(function: F) -> F:
    """`--warehouse`."""
    return click.option(
        "--warehouse",
        "-w",
        envvar="CHRONIK_WAREHOUSE",
        default=DEFAULT_WAREHOUSE,
        show_default=True,
        show_envvar=True,
        metavar="DIR",
        help="The folder of the tables and their catalog.",
    )(function)


def catalog_option(function: F) -> F:
    """`--catalog`."""
    return click.option(
        "--catalog",
        multiple=True,
        metavar="KEY=VALUE",
        callback=pairs,
        help="A catalog instead of the folder's own: pyiceberg's properties, "
        "e.g. type=rest and uri=https://HOST, or type=glue.",
    )(function)


def registry_options(function: F) -> F:
    """`--registry` and `--registry-config`."""
    function = click.option(
        "--registry-config",
        multiple=True,
        metavar="KEY=VALUE",
        callback=pairs,
        help="basic.auth.user.info=USER:PASSWORD or bearer.auth.token=TOKEN.",
    )(function)
    return click.option(
        "--registry",
        metavar="URL",
        help="The schema registry of Avro and Protobuf. Tables know the one they were made with.",
    )(function)


def format_option(function: F) -> F:
    """`--format`."""
    return click.option(
        "--format",
        "table_format",
        type=click.Choice(["iceberg", "delta"]),
        default="iceberg",
        show_default=True,
        help="Of the tables. SQL, status and maintenance see both.",
    )(function)


def require_format(table_format: str, catalog: dict[str, str], partition_by: str = "") -> None:
    """What a format cannot do, and a package that is missing, before anything opens."""
    from chronik.pipeline.delta_table import deltalake

    if table_format == "iceberg":
        return
    if catalog:
        raise click.UsageError("Delta tables have no catalog: --catalog is for --format iceberg")
    if partition_by:
        raise click.UsageError("Delta has no partition transforms: --partition-by is Iceberg's")
    deltalake()


def tables_of(table_format: str, warehouse: str, catalog: dict[str, str]) -> "Tables":
    """Where the tables are."""
    from chronik.pipeline.delta_table import DeltaWarehouse
    from chronik.pipeline.warehouse import Warehouse

    if table_format == "delta":
        return DeltaWarehouse(warehouse)
    return Warehouse(warehouse, catalog)


def tell_of_nothing(warehouse: str) -> None:
    """A folder without tables may be the wrong one."""
    note(f"No tables in '{warehouse}'. 'chronik pipeline ingest TOPIC --once' makes one.")


def tell_of_delta(warehouse: str) -> None:
    """Names the Delta tables that are left out because the package for them is missing."""
    from chronik.pipeline.delta_names import delta_names

    names = delta_names(warehouse)
    if names and find_spec("deltalake") is None:
        note(
            f"Delta tables are left out ({', '.join(names)}): they need pip install "
            "'chronik[delta]'."
        )


def pairs(
    _context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    """KEY=VALUE options as a dict."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"'{text}' is not KEY=VALUE", param=parameter)
        found[name] = value
    return found


def master_option(function: F) -> F:
    """`--master` and `--py-files`."""
    function = click.option(
        "--py-files",
        metavar="FILE[,...]",
        expose_value=False,
        callback=_py_files,
        help="Wheels or zips for the executors of another machine; by default Chronik itself.",
    )(function)
    return click.option(
        "--master",
        default="local[*]",
        show_default=True,
        metavar="URL",
        help="The Spark master, e.g. spark://HOST:7077.",
    )(function)


def _py_files(_ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    """Kept in the environment, where whoever starts the session finds it."""
    if value is None:
        return
    for one in value.split(","):
        if not os.path.isfile(one):
            raise click.BadParameter(f"there is no file '{one}'")
    os.environ[PY_FILES] = value


def pipeline_command(function: Callable[P, R]) -> Callable[P, R]:
    """A command of the pipeline: it never ends with a traceback."""

    @quiet_end
    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        _require_packages()
        try:
            return function(*args, **kwargs)
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as error:
            text = _known(error)
            if text is None:
                raise
            raise click.ClickException(text) from error

    return wrapped


def _known(error: Exception) -> str | None:
    """What to say about an error that is no defect; the imports wait until there is one."""
    from chronik.pipeline.avro_table import NoAvroError
    from chronik.pipeline.catalogs import WarehouseError
    from chronik.pipeline.client import ClusterError
    from chronik.pipeline.data_files import WrongFile
    from chronik.pipeline.delta_table import NoDeltaError
    from chronik.pipeline.fetch import DataLoss
    from chronik.pipeline.plan import IngestError
    from chronik.pipeline.protobuf_schema import NoProtobufError
    from chronik.pipeline.registry import RegistryError
    from chronik.pipeline.session import NoJavaError
    from chronik.pipeline.table_errors import explained
    from chronik.pipeline.tasks import WrongCount
    from chronik.pipeline.warehouse import OffsetConflict

    said: tuple[type[Exception], ...] = (
        ClusterError,
        DataLoss,
        IngestError,
        NoJavaError,
        OffsetConflict,
    )
    said += (NoAvroError, NoDeltaError, NoProtobufError, RegistryError, WarehouseError, WrongCount)
    said += (WrongFile,)
    return str(error) if isinstance(error, said) else explained(error)


def _require_packages() -> None:
    missing = [name for name in ("pyiceberg", "pyspark") if find_spec(name) is None]
    if missing:
        raise click.ClickException(
            f"the pipeline needs the package '{missing[0]}'. Install Chronik with its Spark part: "
            "pip install 'chronik[spark]'"
        )
