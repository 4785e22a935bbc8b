"""Commands and their answers as bytes, for the way from any node to the one that decides.

Values are dataclasses of this room made of numbers, texts, bytes, tuples and mappings; each is
written with its class name, so that only known classes are ever built from what a peer sends.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import IntEnum
from typing import Any, Final

from chronik.cluster import commands, image
from chronik.model import errors

_CLASSES: Final[dict[str, type[Any]]] = {
    name: found
    for module in (commands, image)
    for name, found in vars(module).items()
    if isinstance(found, type) and is_dataclass(found)
}
_ENUMS: Final[dict[str, type[IntEnum]]] = {
    name: found
    for module in (commands, image, errors)
    for name, found in vars(module).items()
    if isinstance(found, type) and issubclass(found, IntEnum) and found is not IntEnum
}


class CommandCodecError(ValueError):
    """Bytes that are no value of this room."""


def encode_value(value: object) -> bytes:
    """The bytes of a command or an answer."""
    return json.dumps(_out(value), separators=(",", ":")).encode()


def decode_value(data: bytes | bytearray | memoryview) -> Any:
    """The value; CommandCodecError where it is none."""
    try:
        return _in(json.loads(bytes(data)))
    except (ValueError, KeyError, TypeError) as error:
        raise CommandCodecError(f"not a command: {error}") from error


def _out(value: object) -> Any:
    match value:
        case IntEnum():
            return {"enum": type(value).__name__, "value": int(value)}
        case None | bool() | int() | str():
            return value
        case bytes():
            return {"bytes": value.hex()}
        case tuple() | list():
            return [_out(one) for one in value]
        case Mapping():
            return {"map": [[_out(k), _out(v)] for k, v in value.items()]}
        case _:
            return _dataclass_out(value)


def _dataclass_out(value: object) -> Any:
    name = type(value).__name__
    if _CLASSES.get(name) is not type(value):
        raise CommandCodecError(f"{name} is not a value that travels")
    return {name: [_out(getattr(value, field.name)) for field in fields(_CLASSES[name])]}


def _in(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_in, value))
    if not isinstance(value, dict):
        return value
    if "enum" in value:
        return _ENUMS[value["enum"]](value["value"])
    if "bytes" in value:
        return bytes.fromhex(value["bytes"])
    if "map" in value:
        return {_in(k): _in(v) for k, v in value["map"]}
    ((name, given),) = value.items()
    return _CLASSES[name](*map(_in, given))
