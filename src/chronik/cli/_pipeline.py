"""What the Spark commands share: options, and errors that say what to do."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import click

from chronik.cli._output import quiet_end

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
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


def master_option(function: F) -> F:
    """`--master`."""
    return click.option(
        "--master",
        default="local[*]",
        show_default=True,
        metavar="URL",
        help="The Spark master, e.g. spark://HOST:7077.",
    )(function)


def pipeline_command(function: Callable[P, R]) -> Callable[P, R]:
    """A command of the pipeline: it never ends with a traceback."""

    @quiet_end
    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        _require_packages()
        from pyspark.errors import PySparkException

        from chronik.pipeline.client import ClusterError
        from chronik.pipeline.fetch import DataLoss
        from chronik.pipeline.ingest import IngestError
        from chronik.pipeline.session import NoJavaError
        from chronik.pipeline.warehouse import OffsetConflict

        try:
            return function(*args, **kwargs)
        except (ClusterError, DataLoss, IngestError, NoJavaError, OffsetConflict) as error:
            raise click.ClickException(str(error)) from error
        except PySparkException as error:
            raise click.ClickException(_first_line(error)) from error

    return wrapped


def _require_packages() -> None:
    try:
        import pyiceberg  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise click.ClickException(
            f"the pipeline needs the package '{error.name}'. Install Chronik with its Spark part: "
            "pip install 'chronik[spark]'"
        ) from error


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
