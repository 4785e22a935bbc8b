"""Compiles the reader of one message in one version: straight-line Python.

Fixed-size fields that follow each other, and the length after them, are one `struct` call.
The generated function takes the data and a position and returns the message and the position after
it. Nulls where a version has none: an empty list for arrays (some clients send -1 for "nothing"),
an error for strings. Unknown tagged fields are skipped (KIP-482).
"""

import struct as structs
from collections.abc import Callable
from typing import Any

from chronik.wire.primitives import (
    Buffer,
    WireError,
    null,
    read_uvarint,
    rest_of_uvarint,
    short,
)
from chronik.wire.schema import FIXED, Field, Message, Struct, contains, fields_of, nested

Reader = Callable[[Buffer, int], tuple[Any, int]]

_HEAD = """def read(data, pos):
    end = len(data)
    try:"""
_TAIL = """        return {result}, pos
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"{what}: {{error}} near byte {{pos}} of {{end}}") from error
    except WireError as error:
        raise WireError(f"{what}: {{error}}") from error"""


def compile_reader(message: type[Message], version: int) -> Reader:
    """The reader of `message` in `version`."""
    source = _Source(version, contains(message.FLEXIBLE, version))
    result = source.struct(message)
    what = f"{message.__name__} v{version}"
    text = "\n".join([_HEAD, *source.lines, _TAIL.format(result=result, what=what)])
    names: dict[str, Any] = source.names
    exec(compile(text, f"<reader of {what}>", "exec"), names)  # noqa: S102 - built from our tables only
    reader: Reader = names["read"]
    return reader


def smallest(struct: type[Struct], field: Field, version: int, flexible: bool) -> int:
    """The least number of bytes that one element of this field's type can take."""
    if field.type in FIXED:
        return structs.calcsize(">" + FIXED[field.type])
    inner = nested(struct, field.type)
    if inner is None:
        return 1 if flexible else 2 if field.type == "string" else 4
    total = 1 if flexible else 0
    for part in fields_of(inner, version):
        if part.tag is None:
            prefix = 1 if flexible else 4
            total += prefix if part.is_array else smallest(inner, part, version, flexible)
    return max(total, 1)


class _Source:
    """Lines of the function being written, and the run of fixed-size values not yet read."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.depth = 2
        self.count = 0
        self.run: list[tuple[str, str]] = []
        self.names: dict[str, Any] = {
            "StructError": structs.error,
            "WireError": WireError,
            "null": null,
            "rest_of_uvarint": rest_of_uvarint,
            "read_uvarint": read_uvarint,
            "short": short,
            "unpack_from": structs.unpack_from,
        }

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def new(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def flush(self) -> None:
        """One unpack for all fixed-size values that follow each other."""
        if not self.run:
            return
        layout = structs.Struct(">" + "".join(code for code, _ in self.run))
        name = f"unpack_{layout.format[1:].replace('?', 'o')}"
        self.names[name] = layout.unpack_from
        targets = ", ".join(target for _, target in self.run)
        self.line(f"{targets}, = {name}(data, pos)")
        self.line(f"pos += {layout.size}")
        self.run = []

    def struct(self, struct: type[Struct]) -> str:
        """Reads one struct; returns the expression that builds it."""
        values: list[str] = []
        tagged: list[tuple[Field, str]] = []
        for field in fields_of(struct, self.version):
            target = self.new("v")
            values.append(f"{field.name}={target}")
            if field.tag is None:
                self.field(struct, field, target)
            else:
                tagged.append((field, target))
        if self.flexible:
            self.tags(struct, tagged)
        self.flush()
        self.names[struct.__name__] = struct
        return f"{struct.__name__}({', '.join(values)})"

    def field(self, struct: type[Struct], field: Field, target: str) -> None:
        inner = nested(struct, field.type)
        if field.is_array:
            self.array(struct, field, target)
        elif field.type in FIXED:
            self.run.append((FIXED[field.type], target))
        elif inner is None:
            self.text(field, target)
        elif field.nullable:
            self.nullable_struct(inner, target)
        else:
            self.line(f"{target} = {self.struct(inner)}")

    def length(self, legacy: str) -> str:
        """Reads a length prefix; -1 is null."""
        n = self.new("n")
        self.run.append(("B" if self.flexible else legacy, n))
        self.flush()
        if self.flexible:
            self.line(f"if {n} > 127: {n}, pos = rest_of_uvarint(data, pos, {n})")
            self.line(f"{n} -= 1")
        return n

    def text(self, field: Field, target: str) -> None:
        """A string, bytes or records."""
        n = self.length("h" if field.type == "string" else "i")
        self.line(f"if {n} >= 0:")
        self.line(f"    if {n} > end - pos: raise short({field.name!r}, {n}, pos, end)")
        piece = f"data[pos:pos + {n}]"
        value = f'str({piece}, "utf-8")' if field.type == "string" else f"bytes({piece})"
        self.line(f"    {target} = {value}")
        self.line(f"    pos += {n}")
        if field.nullable:
            self.line(f"else: {target} = None")
        else:
            self.line(f"else: raise null({field.name!r}, pos)")

    def nullable_struct(self, inner: type[Struct], target: str) -> None:
        """A struct behind a byte that is negative for null (KIP-893)."""
        mark = self.new("n")
        self.run.append(("b", mark))
        self.flush()
        self.line(f"if {mark} < 0: {target} = None")
        self.line("else:")
        self.depth += 1
        self.line(f"{target} = {self.struct(inner)}")
        self.depth -= 1

    def array(self, struct: type[Struct], field: Field, target: str) -> None:
        n = self.length("i")
        least = smallest(struct, field, self.version, self.flexible)
        too_many = f"raise short({field.name + ' elements'!r}, {n}, pos, end)"
        self.line(f"if {n} * {least} > end - pos: {too_many}")
        self.line(f"if {n} > 0:")
        self.depth += 1
        if field.type in FIXED:
            code = FIXED[field.type]
            layout = f"'>' + '16s' * {n}" if code == "16s" else f'f">{{{n}}}{code}"'
            self.line(f"{target} = list(unpack_from({layout}, data, pos))")
            self.line(f"pos += {n} * {least}")
        else:
            self.elements(struct, field, target, n)
        self.depth -= 1
        empty = f"[] if {n} == 0 else None" if field.nullable else "[]"
        self.line(f"else: {target} = {empty}")

    def elements(self, struct: type[Struct], field: Field, target: str, n: str) -> None:
        self.line(f"{target} = []")
        self.line(f"for _ in range({n}):")
        self.depth += 1
        inner = nested(struct, field.type)
        if inner is None:
            element = self.new("e")
            self.text(field._replace(is_array=False, nullable=False), element)
        else:
            element = self.struct(inner)
        self.line(f"{target}.append({element})")
        self.depth -= 1

    def tags(self, struct: type[Struct], tagged: list[tuple[Field, str]]) -> None:
        """The tagged section: defaults first, then whatever of it is there."""
        n = self.new("n")
        self.run.append(("B", n))
        self.flush()
        for field, target in tagged:
            self.default(struct, field, target)
        self.line(f"if {n}:")
        self.depth += 1
        self.line(f"if {n} > 127: {n}, pos = rest_of_uvarint(data, pos, {n})")
        stop = self.new("stop")
        self.line(f"for _ in range({n}):")
        self.depth += 1
        self.line("tag, pos = read_uvarint(data, pos)")
        self.line("size, pos = read_uvarint(data, pos)")
        self.line("if size > end - pos: raise short('tagged field', size, pos, end)")
        self.line(f"{stop} = pos + size")
        for number, (field, target) in enumerate(tagged):
            self.line(f"{'elif' if number else 'if'} tag == {field.tag}:")
            self.depth += 1
            self.field(struct, field, target)
            self.flush()
            self.depth -= 1
        self.line(f"pos = {stop}")
        self.depth -= 2

    def default(self, struct: type[Struct], field: Field, target: str) -> None:
        """What an absent tagged field means; lists and structs are made anew each time."""
        value = getattr(struct(), field.name)
        if isinstance(value, list):
            self.line(f"{target} = []")
        elif isinstance(value, Struct):
            self.names[type(value).__name__] = type(value)
            self.line(f"{target} = {type(value).__name__}()")
        else:
            self.line(f"{target} = {value!r}")
