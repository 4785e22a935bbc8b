"""How `consume` writes a record: templates and JSON."""

import json
from typing import Any

import click
import pytest

from chronik.cli._formatting import formatter


class Read:
    """A message with the methods that are asked of one: only newer libraries let us make theirs."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        return lambda: self._fields[name]


def message(**fields: Any) -> Any:
    standard: dict[str, Any] = {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "key": b"k",
        "value": b"v",
        "headers": [("a", b"1"), ("b", None)],
        "timestamp": (1, 1234),
    }
    return Read(standard | fields)


def write(template: str | None, **fields: Any) -> bytes:
    return formatter(template, as_json=False, offsets=False)(message(**fields))


def test_the_value_and_a_newline_unless_told_otherwise() -> None:
    assert write(None) == b"v\n"
    assert write("") == b""


def test_every_directive() -> None:
    assert write(r"%t/%p@%o %T %k=%v [%h] 100%%\t\x41\n") == b"t/2@7 1234 k=v [a=1,b=] 100%\tA\n"


def test_bytes_that_are_no_text_stay_as_they_are() -> None:
    assert write("%v", value=b"\xff\x00") == b"\xff\x00"


def test_a_null_is_written_as_nothing() -> None:
    assert write("%k|%v|%h", key=None, value=None, headers=None) == b"||"


def test_offsets_come_before_the_template() -> None:
    assert formatter(None, as_json=False, offsets=True)(message()) == b"2:7\tv\n"


@pytest.mark.parametrize("template", ["%z", "abc%", "%\n"])
def test_an_unknown_directive_is_refused_with_the_known_ones(template: str) -> None:
    with pytest.raises(click.BadParameter, match="%k, %v"):
        write(template)


def test_json_has_one_line_and_tells_null_empty_and_bytes_apart() -> None:
    line = formatter(None, as_json=True, offsets=False)(
        message(key=b"\xff", value=None, headers=[("ü", b""), ("x", b"\xfe")])
    )
    assert line.endswith(b"}\n")
    assert json.loads(line) == {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp_ms": 1234,
        "key_base64": "/w==",
        "value": None,
        "headers": [{"name": "ü", "value": ""}, {"name": "x", "value_base64": "/g=="}],
    }
