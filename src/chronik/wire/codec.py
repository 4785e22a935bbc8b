"""Bodies: bytes to message and back, for every generated class and version.

Readers and writers are compiled at first use, one per class and version. Reading is lenient:
unknown tagged fields are skipped, bytes after the message ignored, and fields that the version
lacks keep their default. Writing drops fields that the version lacks.
"""

from typing import Any, TypeVar

from chronik.wire.primitives import Buffer, WireError
from chronik.wire.readers import Reader, compile_reader
from chronik.wire.schema import Message, contains
from chronik.wire.writers import Writer, compile_writer

__all__ = ["WireError", "decode", "decode_from", "encode"]

M = TypeVar("M", bound=Message)

_readers: dict[tuple[type[Message], int], Reader] = {}
_writers: dict[tuple[type[Message], int], Writer] = {}


def decode(cls: type[M], version: int, data: Buffer, position: int = 0) -> M:
    """The message of class `cls` that starts at `position`; whatever follows it is ignored."""
    return decode_from(cls, version, data, position)[0]


def decode_from(cls: type[M], version: int, data: Buffer, position: int = 0) -> tuple[M, int]:
    """The message and the position after it."""
    reader = _readers.get((cls, version))
    if reader is None:
        check_version(cls, version)
        reader = _readers[cls, version] = compile_reader(cls, version)
    result: tuple[M, int] = reader(data, position)
    return result


def encode(message: Message, version: int) -> bytes:
    """The bytes of the message in `version`."""
    key: tuple[Any, int] = (type(message), version)
    writer = _writers.get(key)
    if writer is None:
        check_version(type(message), version)
        writer = _writers[key] = compile_writer(type(message), version)
    return writer(message)


def check_version(cls: type[Message], version: int) -> None:
    """Raises where the class has no such version."""
    if not contains(cls.VERSIONS, version):
        raise WireError(f"{cls.__name__} has no version {version}, only {cls.VERSIONS}")
