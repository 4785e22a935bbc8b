"""Writes docs/reference/protocol.md from the handler table; a test says when it is out of date."""

import inspect
import sys
from pathlib import Path

from chronik.handlers.api import Api
from chronik.handlers.table import TABLE
from chronik.wire.apis import flexible_from

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "protocol.md"
HEAD = """# The protocol that Chronik speaks

Made by `make generate` from the handler table, which is also what ApiVersions answers. An API that
is not here is not advertised; a request for it gets UNSUPPORTED_VERSION and the connection lives.
Version ranges are those of Apache Kafka 4.3.

| key | API | versions | flexible from | notes |
|---|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(map(_row, TABLE.values()))


def _row(api: Api) -> str:
    name = "".join(word.capitalize() for word in api.key.name.split("_"))
    first, last = api.advertised
    notes = " ".join(_notes(api).split()).replace("|", "\\|")
    return f"| {int(api.key)} | {name} | {first}-{last} | {flexible_from(api.key)} | {notes} |\n"


def _notes(api: Api) -> str:
    """What the handler's file says of itself, after the API's name and versions."""
    serve = api.fast or getattr(api.handle, "func", api.handle)
    module = inspect.getmodule(serve)
    assert module is not None
    text = inspect.getdoc(module) or ""
    return text.partition(": ")[2]


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page())
    sys.stdout.write(f"wrote {PAGE.name}: {len(TABLE)} APIs\n")


if __name__ == "__main__":
    main()
