"""The text of a query: which tables it names, and which of them at an earlier time.

A lexer, not a parser: both engines parse the text themselves. Names inside strings and comments
are left alone.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

SYSTEM = "chronik"
"""The schema of the tables about the cluster itself: chronik.topics, chronik.lag, ..."""
_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)|(?P<string>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`)|(?P<number>\d+)|(?P<word>[^\W\d]\w*)|(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_FROM = {"from", "join"}
_CLAUSES = {"where", "select", "group", "order", "having", "limit", "union"}
"""What ends a list of tables."""
_VERSION = {"version", "system_version"}
_TIME = {"timestamp", "system_time"}


class BadQuery(ValueError):  # noqa: N818
    """The text asks for something that is not there."""


@dataclass(frozen=True, slots=True)
class AsOf:
    """An earlier state of a table: a snapshot by its id, or the newest one at a moment."""

    snapshot_id: int | None = None
    moment_ms: int | None = None

    def __str__(self) -> str:
        if self.moment_ms is None:
            return f"snapshot {self.snapshot_id}"
        return datetime.fromtimestamp(self.moment_ms / 1000, UTC).isoformat()


def parse_as_of(text: str) -> AsOf:
    """A snapshot's id, or an ISO 8601 time (UTC where it names no zone)."""
    if text.isascii() and text.isdigit():
        return AsOf(snapshot_id=int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadQuery(
            f"{text!r} is neither the id of a snapshot nor a time such as 2026-07-31T12:00:00Z"
        ) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return AsOf(moment_ms=round(moment.timestamp() * 1000))


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text; `name` is a word or quoted identifier without quotes, lower case."""

    kind: str
    text: str

    @property
    def name(self) -> str:
        if self.kind == "quoted":
            return self.text[1:-1].lower()
        return self.text.lower() if self.kind == "word" else ""


def tokens(text: str) -> list[Token]:
    """Every character of the text is in exactly one token."""
    return [Token(one.lastgroup or "other", one[0]) for one in _TOKEN.finditer(text)]


def names(text: str) -> set[str]:
    """Everything in the text that could be the name of a table, in lower case."""
    return {one.name for one in tokens(text)} - {""}


def sources(text: str) -> set[str]:
    """What follows FROM and JOIN, also with commas, in lower case; it may have names too many."""
    found, listed, before = set(), False, ""
    for one in tokens(text):
        if one.kind == "space":
            continue
        listed = one.name in _FROM or (listed and one.name not in _CLAUSES)
        if before in _FROM or (listed and before == ","):
            found.add(one.name)
        before = one.name or one.text
    return found - {""}


def words(text: str) -> set[str]:
    """The words as they are written, keywords among them; nothing in quotes."""
    return {one.text for one in tokens(text) if one.kind in {"word", "number"}}


def system_names(text: str) -> set[str]:
    """The names after `chronik.`."""
    found = [one for one in tokens(text) if one.kind != "space"]
    return {
        last.name
        for first, dot, last in zip(found, found[1:], found[2:], strict=False)
        if first.name == SYSTEM and dot.text == "."
    } - {""}


def without_time_travel(
    text: str, known: Collection[str]
) -> tuple[str, dict[str, tuple[str, AsOf]]]:
    """The text with `orders VERSION AS OF 5` replaced by a view's name, and what each view is.

    Also `TIMESTAMP AS OF '...'`, and with `FOR SYSTEM_TIME`; one query may name several states.
    """
    parts = tokens(text)
    told: dict[str, tuple[str, AsOf]] = {}
    written: list[str] = []
    at = 0
    while at < len(parts):
        found = _travel_at(parts, at) if parts[at].name in known else None
        if found is None:
            written.append(parts[at].text)
            at += 1
            continue
        as_of, at_next = found
        view = _view_name(parts[at].name, as_of)
        told[view] = (parts[at].name, as_of)
        written.append(view)
        at = at_next
    return "".join(written), told


def _view_name(name: str, as_of: AsOf) -> str:
    if as_of.moment_ms is None:
        return f"{name}__version_{as_of.snapshot_id}"
    return f"{name}__at_{as_of.moment_ms}"


def _travel_at(parts: list[Token], at: int) -> tuple[AsOf, int] | None:
    """What follows the name at `at`, if it is a time travel, and where the text goes on."""
    words = [(i, one) for i, one in enumerate(parts[at + 1 :], at + 1) if one.kind != "space"][:6]
    if words and words[0][1].name == "for":
        words = words[1:]
    said = [one.name for _, one in words]
    if len(said) < 4 or said[0] not in _VERSION | _TIME or said[1:3] != ["as", "of"]:
        return None
    if said[3] == "timestamp" and len(words) > 4:
        words = words[:3] + words[4:]
    end, value = words[3]
    if value.kind not in {"number", "string"}:
        raise BadQuery(f"after AS OF comes a snapshot's id or a quoted time, not {value.text}")
    as_of = parse_as_of(value.text.strip("'"))
    if (as_of.moment_ms is None) != (said[0] in _VERSION):
        raise BadQuery("VERSION AS OF takes a snapshot's id, TIMESTAMP AS OF a quoted time")
    return as_of, end + 1


def for_duckdb(text: str) -> str:
    """`offset` is a column of ours and a keyword of DuckDB: it is quoted where it is no clause."""
    parts = tokens(text)
    written = []
    for at, one in enumerate(parts):
        following = next((two for two in parts[at + 1 :] if two.kind != "space"), None)
        clause = following is not None and (following.kind == "number" or following.text == "(")
        is_column = one.kind == "word" and one.name == "offset" and not clause
        written.append('"offset"' if is_column else one.text)
    return "".join(written)
