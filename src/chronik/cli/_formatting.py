"""How a consumed record is written: by a template, or as one JSON object per line."""

import base64
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from chronik.cli._options import unescaped

if TYPE_CHECKING:
    from confluent_kafka import Message

Formatter = Callable[["Message"], bytes]

DEFAULT_TEMPLATE = r"%v\n"
OFFSETS_TEMPLATE = r"%p:%o\t"
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)


def formatter(template: str | None, *, as_json: bool, offsets: bool) -> Formatter:
    """The function that writes one record."""
    if as_json:
        return json_line
    text = template if template is not None else DEFAULT_TEMPLATE
    parts = _parse(OFFSETS_TEMPLATE + text if offsets else text)
    return lambda message: b"".join([part(message) for part in parts])


def _parse(template: str) -> list[Formatter]:
    parts: list[Formatter] = []
    position = 0
    for found in _DIRECTIVE.finditer(template):
        parts.append(_literal(template[position : found.start()]))
        parts.append(_directive(found[1], template))
        position = found.end()
    parts.append(_literal(template[position:]))
    return parts


def _literal(text: str) -> Formatter:
    data = unescaped(text, "--format")
    return lambda _: data


def _directive(letter: str, template: str) -> Formatter:
    known: dict[str, Formatter] = {
        "k": lambda message: _bytes(message.key()),
        "v": lambda message: _bytes(message.value()),
        "h": lambda message: b",".join(
            name.encode() + b"=" + _bytes(value) for name, value in _headers(message)
        ),
        "o": lambda message: b"%d" % (message.offset() or 0),
        "p": lambda message: b"%d" % (message.partition() or 0),
        "t": lambda message: (message.topic() or "").encode(),
        "T": lambda message: b"%d" % message.timestamp()[1],
        "%": lambda _: b"%",
    }
    if letter not in known:
        raise click.BadParameter(
            f"{template!r}: %{letter} means nothing; there are "
            f"{', '.join('%' + name for name in known)}",
            param_hint="'--format'",
        )
    return known[letter]


def _headers(message: "Message") -> list[tuple[str, Any]]:
    found: Any = message.headers() or []
    return list(found)


def _bytes(value: Any) -> bytes:
    """A null is written as nothing; JSON can tell the two apart."""
    return b"" if value is None else bytes(value)


def json_line(message: "Message") -> bytes:
    """One object in one line; what is not UTF-8 goes to `..._base64` instead."""
    record: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": message.timestamp()[1],
        **json_field("key", message.key()),
        **json_field("value", message.value()),
        "headers": [{"name": name, **json_field("value", it)} for name, it in _headers(message)],
    }
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def json_field(name: str, value: Any) -> dict[str, str | None]:
    """{name: text}, or {name_base64: text} where the bytes are no UTF-8."""
    if value is None:
        return {name: None}
    try:
        return {name: bytes(value).decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(bytes(value)).decode()}
