"""Real request frames of every API and version, and ways to spoil them."""

import random
import struct
from collections.abc import Callable
from typing import Any

from tests.clients.batches import Batch
from tests.faults.nodes import frame_of

from chronik.handlers.table import TABLE
from chronik.wire.apis import is_served
from chronik.wire.schema import FIXED, Message, Struct, contains, fields_of, nested

EXTREMES = (0, 1, -1, 2, 127, 128, 255, 32767, -32768, 2**31 - 1, -(2**31), 100, 10_000)
TOPICS = ("fuzzed", "missing", "__internal", "..", "x" * 249, "")


def every_frame(rng: random.Random) -> list[bytes]:
    """At least one whole request of each API and version that is served."""
    frames = []
    for api in TABLE.values():
        for version in range(api.advertised.first, api.advertised.last + 1):
            if is_served(api.key, version) and contains(api.request.VERSIONS, version):
                for _ in range(3):
                    request = filled(api.request, version, rng)
                    assert isinstance(request, Message)
                    frames.append(frame_of(request, version, rng.randrange(2**31)))
    return frames


def filled(struct_class: type[Struct], version: int, rng: random.Random) -> Struct:
    """A request whose every field of the version has a plausible value."""
    values: dict[str, Any] = {}
    for field in fields_of(struct_class, version):
        inner = nested(struct_class, field.type)

        def one(inner: type[Struct] | None = inner, kind: str = field.type) -> Any:
            return filled(inner, version, rng) if inner else plain(kind, rng)

        values[field.name] = [one() for _ in range(rng.randint(1, 2))] if field.is_array else one()
    return struct_class(**values)


def plain(kind: str, rng: random.Random) -> Any:
    """A value of a primitive type, as clients send it."""
    if kind == "records":
        return Batch(values=[rng.randbytes(20)], producer_id=rng.choice([-1, 5])).encode()
    if kind == "string":
        return rng.choice(TOPICS)
    if kind == "bytes":
        return rng.randbytes(rng.randrange(20))
    if kind == "uuid":
        return rng.choice([bytes(16), rng.randbytes(16)])
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.random()
    assert kind in FIXED, kind
    bits = {"int8": 7, "int16": 15, "uint16": 15, "int32": 31, "int64": 63}[kind]
    return rng.choice([0, 0, 1, 1, 2, 5, -1 if kind != "uint16" else 1, 2 ** rng.randrange(bits)])


# ---- spoiling


def spoiled(frame: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """The frame after one to three accidents."""
    data = bytearray(frame)
    for _ in range(rng.randint(1, 3)):
        rng.choice(ACCIDENTS)(data, others, rng)
    return bytes(data) or b"\0"


def _flip(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _byte(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 127, 128, 255))


def _number(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    code, size = rng.choice(((">h", 2), (">i", 4), (">q", 8)))
    if len(data) >= size:
        extreme = rng.choice(EXTREMES)
        if size == 2:
            extreme = max(-32768, min(32767, extreme))
        struct.pack_into(code, data, rng.randrange(len(data) - size + 1), extreme)


def _cut(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _remove(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    start = rng.randrange(len(data) + 1)
    del data[start : start + rng.randint(1, 8)]


def _insert(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    start = rng.randrange(len(data) + 1)
    data[start:start] = rng.randbytes(rng.randint(1, 8))


def _splice(data: bytearray, others: list[bytes], rng: random.Random) -> None:
    other = rng.choice(others)
    data[rng.randrange(len(data) + 1) :] = other[rng.randrange(len(other)) :]


def _version(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    if len(data) >= 4:
        struct.pack_into(">h", data, 2, rng.randint(-1, 20))


def _api(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    if len(data) >= 2:
        struct.pack_into(">h", data, 0, rng.randint(-1, 90))


Accident = Callable[[bytearray, list[bytes], random.Random], None]
ACCIDENTS: tuple[Accident, ...] = (
    _flip,
    _flip,
    _byte,
    _byte,
    _number,
    _number,
    _cut,
    _remove,
    _insert,
    _splice,
    _version,
    _api,
)
