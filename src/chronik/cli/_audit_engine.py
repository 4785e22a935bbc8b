"""Where an audit runs: in memory, or on Spark for ledgers that do not fit there."""

import re
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from chronik.audit.anomaly import Policy, Verdict

MEMORY, SPARK, AUTO = "memory", "spark", "auto"
ENGINES = (AUTO, MEMORY, SPARK)
AUTO_EVENTS = 1_000_000
"""In memory a million events take half a minute and a gigabyte: as long as Spark takes to begin."""
MASTER_TIMEOUT_S = 5.0
_EVENT_BYTES = 6
_LINE_BYTES = 150


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The ledgers, and those inside directories."""
    from chronik.audit.ledger import ledger_files

    return ledger_files(paths)


def events_about(files: Sequence[Path]) -> int:
    """How many events files hold, by their size."""
    from chronik.audit.ledger import SUFFIX

    sizes = ((path.stat().st_size, path.suffix == SUFFIX) for path in files)
    return sum(size // (_EVENT_BYTES if is_ledger else _LINE_BYTES) for size, is_ledger in sizes)


def chosen_engine(engine: str, paths: Sequence[Path]) -> str:
    """What `auto` means here."""
    if engine != AUTO:
        return engine
    about = events_about(files_of(paths))
    if about < AUTO_EVENTS:
        return MEMORY
    missing = _missing()
    if missing:
        click.echo(f"about {about} events are judged in memory: {missing}", err=True)
    return MEMORY if missing else SPARK


def _missing() -> str:
    """Why Spark cannot be used; empty if it can."""
    try:
        from chronik.pipeline.session import NoJavaError, require_java
    except ImportError as error:
        return f"{error.name} is not installed (pip install chronik[spark])"
    try:
        require_java()
    except NoJavaError as error:
        return str(error)
    return ""


def named_folders(folders: Sequence[Path]) -> dict[str, Path]:
    """Data directories by the names of their nodes; by the whole path where two are alike."""
    names = Counter(folder.resolve().name for folder in folders)
    return {
        folder.name if names[folder.resolve().name] == 1 else str(folder): folder
        for folder in map(Path.resolve, folders)
    }


def spark_verdict(
    paths: Sequence[Path], policy: "Policy", master: str, **options: Any
) -> "Verdict":
    """The verdict by Spark, with `audit_spark.job.Options`; an error that says what to do."""
    missing = _missing()
    if missing:
        raise click.ClickException(missing)
    files = _checked(paths)
    _check_tables(options.get("tables"))
    check_master(master)
    from chronik.audit_spark.job import Options, audit_ledgers
    from chronik.audit_spark.session import audit_session

    with _spoken(master):
        spark = audit_session(master, events_about(files))
        try:
            return audit_ledgers(spark, files, policy, Options(**options))
        finally:
            spark.stop()


def _checked(paths: Sequence[Path]) -> list[Path]:
    from chronik.audit.ledger import LedgerError, check_ledger
    from chronik.audit.sources import JSON_SUFFIXES

    files = files_of(paths)
    if not files:
        named = ", ".join(map(str, paths))
        raise click.UsageError(f"no rows of a ledger are in {named}: is it a directory of ledgers?")
    try:
        for path in files:
            if path.suffix not in JSON_SUFFIXES:
                check_ledger(path)
    except (LedgerError, OSError) as error:
        raise click.UsageError(str(error)) from error
    return files


def _check_tables(target: Path | None) -> None:
    """Tables of an earlier audit are replaced; nothing else is."""
    from chronik.audit_spark.job import TABLES

    for name in TABLES if target else ():
        folder = Path(target or "", name)
        if folder.exists() and not (folder / "_SUCCESS").exists():
            raise click.UsageError(
                f"--tables: {folder} is there and is no table of an audit; name another folder"
            )


def check_master(master: str) -> None:
    """Spark asks a master that does not answer for a minute: this says it at once."""
    if not master.startswith("spark://"):
        return
    failures = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), MASTER_TIMEOUT_S).close()
        except (OSError, ValueError) as error:
            failures.append(f"{place}: {error}")
        else:
            return
    raise click.ClickException(
        f"no Spark master answers ({'; '.join(failures)}). Check that it runs, that --master is "
        "the spark:// address on its own page (port 7077 by default, not that of the page), and "
        "that this machine can reach it"
    )


@contextmanager
def _spoken(master: str) -> Iterator[None]:
    """Spark's errors as one sentence."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise click.ClickException(
            f"the audit on {master} failed: {_reason(str(error))}. Check --master; on a cluster "
            "the workers must reach ledgers, replicas, traces and tables at the same paths"
        ) from error


def _reason(text: str) -> str:
    """The innermost message of a Java or Python trace."""
    lines = [line.strip() for line in text.splitlines()]
    errors = [line for line in lines if re.match(r"(\w+[.])*\w*(Error|Exception): ", line)]
    return (errors or [line for line in lines if line])[-1][:300]
