"""What is wrong with a query, asked of DuckDB over empty tables: no data is read, no Spark starts.

DuckDB's dialect is not Spark's, so only those of its answers count that hold for both: a table that
does not exist, a column that no table has. Whatever else it refuses may still be right for Spark.
"""

import difflib
import re
from collections.abc import Mapping

import duckdb
import pyarrow as pa

from chronik.pipeline.sql_duckdb import connected
from chronik.pipeline.sql_plan import RAW, Plan
from chronik.pipeline.sql_text import for_duckdb, words
from chronik.pipeline.warehouse import table_name

_TABLE = re.compile(r'Table with name "?(.+?)"? does not exist')
_COLUMN = re.compile(r'column "([^"]+)" not found|does not have a column named "([^"]+)"')
_CANDIDATES = re.compile(r'"([^"]+)"')
SUGGESTIONS_MAX = 3
NAMES_SHOWN_MAX = 20


class Unparsed(Exception):  # noqa: N818
    """DuckDB cannot read the text; its words say where."""


def problem(wanted: Plan, system: Mapping[str, pa.Table]) -> str | None:
    """Why no engine can answer; None where one may. Raises `Unparsed`."""
    if not words(wanted.text):
        return "the query is empty"
    with connected(system) as connection:
        for view in wanted.views:
            schema = RAW if view.schema is None else view.schema
            connection.register(view.name, schema.empty_table())
        try:
            connection.sql(for_duckdb(wanted.text))
        except duckdb.ParserException as error:
            if told := _other_spelling(wanted):
                return told
            raise Unparsed(_sentence(error)) from error
        except duckdb.CatalogException as error:
            return _unknown_table(wanted, str(error))
        except duckdb.BinderException as error:
            return _unknown_column(wanted, str(error))
        except duckdb.Error:
            return None
    return None


def _sentence(error: duckdb.Error) -> str:
    return str(error).splitlines()[0].removeprefix("Parser Error: ")


def _unknown_table(wanted: Plan, said: str) -> str | None:
    found = _TABLE.match(said.removeprefix("Catalog Error: "))
    if found is None:  # a function, which Spark may know
        return None
    if told := _other_spelling(wanted):
        return told
    name = found[1]
    close = difflib.get_close_matches(table_name(name), wanted.known, SUGGESTIONS_MAX, 0.7)
    if close:
        return f"there is no table or topic '{name}'. Did you mean {_listed(close)}?"
    shown = wanted.known[:NAMES_SHOWN_MAX]
    more = ", ..." if len(wanted.known) > len(shown) else ""
    others = f"There are {_listed(shown, ', ')}{more}" if shown else "There is none yet"
    return f"there is no table or topic '{name}'. {others}"


def _other_spelling(wanted: Plan) -> str | None:
    """A topic's own name, where SQL has other uses for its dots and dashes."""
    for name in wanted.known:
        spelled = re.escape(name).replace("_", "[._-]")
        found = re.search(rf"(?<![\w.-]){spelled}(?![\w-])", wanted.text)
        if found and found[0] != name:
            return f"the table of '{found[0]}' is called {name}: SQL has other uses for '.' and '-'"
    return None


def _unknown_column(wanted: Plan, said: str) -> str | None:
    found = _COLUMN.search(said)
    if found is None or any(view.schema is None for view in wanted.views):
        return None
    name = found[1] or found[2]
    if name not in words(wanted.text):  # in double quotes: a text for Spark
        return None
    columns = [one.name for view in wanted.views for one in view.schema or ()]
    columns += _CANDIDATES.findall(said.partition("Candidate bindings")[2].partition("LINE")[0])
    close = difflib.get_close_matches(name, columns, SUGGESTIONS_MAX)
    others = f"Did you mean {_listed(close)}?" if close else f"There are {_listed(columns, ', ')}"
    return f"there is no column '{name}'. {others}"


def _listed(names: Mapping[str, str] | tuple[str, ...] | list[str], between: str = " or ") -> str:
    return between.join(f"'{one}'" for one in dict.fromkeys(names))
