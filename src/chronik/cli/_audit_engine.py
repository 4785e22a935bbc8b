"""Where an audit runs: in memory, or on Spark for ledgers that do not fit there."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from chronik.audit.anomaly import Policy, Verdict

MEMORY, SPARK, AUTO = "memory", "spark", "auto"
ENGINES = (AUTO, MEMORY, SPARK)
AUTO_EVENTS = 1_000_000
"""In memory a million events take half a minute and a gigabyte: as long as Spark takes to begin."""
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


def spark_verdict(
    paths: Sequence[Path],
    policy: "Policy",
    master: str,
    *,
    exact_joins: bool,
    tables: Path | None,
    traces: Sequence[Path],
) -> "Verdict":
    """The verdict by Spark; a usage error where it cannot run."""
    missing = _missing()
    if missing:
        raise click.ClickException(missing)
    from chronik.audit_spark.job import Options, audit_ledgers
    from chronik.audit_spark.session import audit_session

    files = files_of(paths)
    spark = audit_session(master, events_about(files))
    try:
        options = Options(exact_joins=exact_joins, tables=tables, traces=tuple(traces))
        return audit_ledgers(spark, files, policy, options)
    finally:
        spark.stop()
