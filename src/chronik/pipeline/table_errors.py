"""Errors of the libraries behind the tables, in a sentence that says what to do.

They are told apart by name, so that nothing is loaded for it: a catalog's client or DuckDB may not
even be installed.
"""

import re

AGAIN = "Nothing of this commit is in the table; run it again"
_BY_NAME = {
    "pyiceberg.CommitFailedException": f"others commit to the table all the time. {AGAIN}",
    "pyiceberg.CommitStateUnknownException": (
        "the catalog did not say whether it took the commit. Run it again: the table says how far "
        "it is, and nothing is taken twice"
    ),
    "pyiceberg.WaitingForLockException": f"another writer holds the table's lock. {AGAIN}",
    "pyiceberg.NoSuchTableError": "the table was dropped meanwhile. Run it again",
    "pyiceberg.NoSuchNamespaceError": "the catalog has no namespace 'chronik'. Run ingest once",
    "pyiceberg.UnauthorizedError": "the catalog asks who you are: --catalog token=TOKEN",
    "pyiceberg.ForbiddenError": "the catalog does not allow it to these credentials (--catalog)",
    "pyiceberg.ServiceUnavailableError": "the catalog is not available. Run it again later",
    "deltalake.CommitFailedError": f"others commit to the table all the time. {AGAIN}",
    "deltalake.TableNotFoundError": "there is no Delta table there",
    "deltalake.DeltaProtocolError": (
        "the table uses a feature of Delta that delta-rs does not have"
    ),
    "py4j.Py4JNetworkError": "Spark's JVM has ended. Run it again: the table says how far it is",
}
_BY_LIBRARY = {
    "pyiceberg": "the catalog or a table says",
    "sqlalchemy": "the catalog's database cannot be used",
    "requests": "the catalog does not answer",
    "urllib3": "the catalog does not answer",
    "botocore": "the catalog or the store does not answer",
    "deltalake": "Delta says",
    "duckdb": "DuckDB says",
    "pyarrow": "a file cannot be read or written",
    "py4j": "Spark says",
    "pyspark": "Spark says",
}
LOCKED = "another process holds the catalog's database. Run it again"
_TRACE = "Traceback (most recent call last)"
_WORKER = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception|\w*)): (.+)$", re.MULTILINE)


def explained(error: BaseException) -> str | None:
    """What to say of an error of a library; None where it is not one of theirs."""
    if isinstance(error, OSError) and type(error).__module__ == "builtins":
        return _of_files(error)
    for kind in type(error).__mro__:
        library = _library(kind)
        advice = _BY_NAME.get(f"{library}.{kind.__name__}")
        if advice is not None:
            return f"{advice} ({first_line(error)})"
        if library in _BY_LIBRARY:
            return _of_library(error, library)
    return None


def _library(kind: type) -> str:
    name = kind.__module__.partition(".")[0]
    return {"_internal": "deltalake", "_duckdb": "duckdb"}.get(name, name)


def _of_library(error: BaseException, library: str) -> str:
    if "database is locked" in str(error):
        return LOCKED
    if library == "py4j" or _TRACE in str(error):
        return _of_task(str(error))
    return f"{_BY_LIBRARY[library]}: {first_line(error)}"


def _of_files(error: OSError) -> str:
    where = f" '{error.filename}'" if error.filename else ""
    return f"{(error.strerror or str(error)).lower()}{where}"


def _of_task(text: str) -> str:
    """A task's own error, which Spark hands on inside of traces of two languages."""
    worker = text.partition(_TRACE)[2]
    found = _WORKER.findall(worker.partition("\n\tat ")[0])
    if found:
        return str(found[-1][1])
    lines = [line for line in text.splitlines() if line.startswith(": ")]
    return f"Spark says: {(lines or text.splitlines() or ['nothing'])[0].removeprefix(': ')}"


def first_line(error: BaseException) -> str:
    """Of what it says; its name where it says nothing."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
