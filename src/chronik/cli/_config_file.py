"""Reads a node's configuration from TOML and from the environment, and knows the line of each key.

tomllib tells no lines, so they are looked for again in the text: a header or a key at the start of
a line is what people write.
"""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from chronik.model.broker_configs import BROKER_KEYS
from chronik.model.node_config import CONFIGS, Given, NodeConfigError
from chronik.model.node_keys import NODE_KEYS

PREFIX = "CHRONIK_"
_PART = r"(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')"
_NAME = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\s*({_NAME})\s*\]")
_ENTRY = re.compile(rf"\s*({_NAME})\s*=")
_AT = re.compile(r"\s*\(at line (\d+), column \d+\)$")


def read_file(path: str) -> list[Given]:
    """The values of a TOML file."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise NodeConfigError([f"{path}: cannot be read: {reason}"]) from error
    return read_toml(text, path)


def read_toml(text: str, name: str) -> list[Given]:
    """The values of a TOML text; `name` is what complaints call it."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _AT.search(str(error))
        where = f"{name}:{found[1]}" if found else f"{name}:{len(text.splitlines())}"
        raise NodeConfigError([f"{where}: {_AT.sub('', str(error))}"]) from error
    lines = _lines(text)
    return [
        Given(key, _with_lines(value, text, name, _line(key, lines)), f"{name}:{_line(key, lines)}")
        for key, value in _flat(document)
    ]


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys: TOML reads `num.partitions = 3` as a table in a table."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _lines(text: str) -> dict[str, int]:
    table = ""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = f"{_plain(header[1])}."
            found.setdefault(table, number)
        elif entry := _ENTRY.match(line):
            found.setdefault(table + _plain(entry[1]), number)
    return found


def _plain(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in re.findall(_PART, name))


def _line(key: str, lines: Mapping[str, int]) -> int:
    """The key's own line, or that of the inline table which holds it."""
    while key not in lines and "." in key:
        key = key.rpartition(".")[0]
    return lines.get(key, 1)


def _with_lines(value: object, text: str, name: str, line: int) -> object:
    """The items of a list with the line of each: it may be written over several."""
    if not isinstance(value, list):
        return value
    items, rows = [], text.splitlines()
    for item in value:
        after = range(line, len(rows) + 1)
        line = next((row for row in after if str(item) in rows[row - 1]), line)
        items.append(Given("", item, f"{name}:{line}"))
    return items


# -- the environment


def variable(key: str) -> str:
    """node.id -> CHRONIK_NODE_ID."""
    return PREFIX + key.upper().replace(".", "_")


def read_environment(environment: Mapping[str, str]) -> list[Given]:
    """The values of the variables that belong to keys; one that nearly does is a mistake."""
    keys = [*NODE_KEYS, *(CONFIGS + name for name in BROKER_KEYS)]
    known = {variable(key): key for key in keys}
    found, problems = [], []
    for name, value in environment.items():
        if name in known:
            found.append(Given(known[name], value, name))
        elif name.startswith(PREFIX):
            close = difflib.get_close_matches(name, known, 1, 0.85)
            if close:
                problems.append(f"{name}: unknown variable: did you mean {close[0]}?")
    if problems:
        raise NodeConfigError(problems)
    return found
