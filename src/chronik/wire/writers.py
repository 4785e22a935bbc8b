"""Compiles the writer of one message in one version: straight-line Python, pieces joined once.

Fields that the version does not have are dropped. A null in a field that is nullable only in other
versions is written as empty; in a field that never is, it is an error.
"""

import struct as structs
from collections.abc import Callable
from typing import Any

from chronik.wire.primitives import UVARINT, WireError, uvarint
from chronik.wire.schema import FIXED, Field, Message, Struct, contains, fields_of, nested

Writer = Callable[[Any], bytes]

_HEAD = """def write(message):
    out = []
    put = out.append
    try:"""
_TAIL = """        return join(out)
    except (StructError, AttributeError, TypeError, UnicodeEncodeError) as error:
        raise WireError(f"{what}: {{error}}") from error"""


def compile_writer(message: type[Message], version: int) -> Writer:
    """The writer of `message` in `version`."""
    source = _Source(version, contains(message.FLEXIBLE, version))
    source.struct(message, "message")
    source.flush()
    what = f"{message.__name__} v{version}"
    text = "\n".join([_HEAD, *source.lines, _TAIL.format(what=what)])
    exec(compile(text, f"<writer of {what}>", "exec"), source.names)  # noqa: S102 - built from our tables only
    writer: Writer = source.names["write"]
    return writer


class _Source:
    """Lines of the function being written, and the run of fixed-size values not yet packed."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.depth = 2
        self.count = 0
        self.put = "put"
        self.run: list[tuple[str, str]] = []
        self.names: dict[str, Any] = {
            "StructError": structs.error,
            "WireError": WireError,
            "UVARINT": UVARINT,
            "uvarint": uvarint,
            "join": b"".join,
            "pack": structs.pack,
        }

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def new(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def flush(self) -> None:
        """One pack for all fixed-size values that follow each other."""
        if not self.run:
            return
        layout = structs.Struct(">" + "".join(code for code, _ in self.run))
        name = f"pack_{layout.format[1:].replace('?', 'o')}"
        self.names[name] = layout.pack
        self.line(f"{self.put}({name}({', '.join(value for _, value in self.run)}))")
        self.run = []

    def struct(self, struct: type[Struct], value: str) -> None:
        """Writes the struct that the expression `value` names."""
        tagged: list[Field] = []
        for field in fields_of(struct, self.version):
            if field.tag is None:
                self.field(struct, field, f"{value}.{field.name}")
            else:
                tagged.append(field)
        if tagged:
            self.tags(struct, tagged, value)
        elif self.flexible:
            self.run.append(("B", "0"))

    def field(self, struct: type[Struct], field: Field, value: str) -> None:
        inner = nested(struct, field.type)
        if field.is_array:
            self.array(struct, field, value)
        elif field.type in FIXED:
            self.run.append((FIXED[field.type], value))
        elif inner is None:
            self.text(field, value)
        elif field.nullable:
            self.nullable_struct(inner, value)
        else:
            name = self.new("s")
            self.line(f"{name} = {value}")
            self.struct(inner, name)

    def length(self, n: str, legacy: str) -> None:
        """Puts a length prefix; the legacy one joins the run before it."""
        if self.flexible:
            self.flush()
            self.line(f"{self.put}(UVARINT[{n} + 1] if {n} < 127 else uvarint({n} + 1))")
        else:
            self.run.append((legacy, n))
            self.flush()

    def null(self, legacy: str) -> None:
        self.run.append(("B", "0") if self.flexible else (legacy, "-1"))
        self.flush()

    def text(self, field: Field, value: str) -> None:
        """A string, bytes or records."""
        legacy = "h" if field.type == "string" else "i"
        name = self.new("t")
        self.line(f"{name} = {value}")
        if field.nullable:
            before = list(self.run)
            self.line(f"if {name} is None:")
            self.depth += 1
            self.null(legacy)
            self.depth -= 1
            self.run = before
            self.line("else:")
            self.depth += 1
        elif field.nullable_elsewhere:
            self.line(f"if {name} is None: {name} = {'' if field.type == 'string' else b''!r}")
        if field.type == "string":
            self.line(f"{name} = {name}.encode()")
        n = self.new("n")
        self.line(f"{n} = len({name})")
        self.length(n, legacy)
        self.line(f"{self.put}({name})")
        self.depth -= field.nullable

    def nullable_struct(self, inner: type[Struct], value: str) -> None:
        """A struct behind a byte that is -1 for null and 1 otherwise (KIP-893)."""
        self.flush()
        name = self.new("s")
        self.line(f"{name} = {value}")
        self.line(f"if {name} is None: {self.put}(b'\\xff')")
        self.line("else:")
        self.depth += 1
        self.run.append(("b", "1"))
        self.struct(inner, name)
        self.flush()
        self.depth -= 1

    def array(self, struct: type[Struct], field: Field, value: str) -> None:
        self.flush()
        name = self.new("a")
        self.line(f"{name} = {value}")
        if field.nullable:
            self.line(f"if {name} is None:")
            self.depth += 1
            self.null("i")
            self.depth -= 1
            self.line("else:")
            self.depth += 1
        elif field.nullable_elsewhere:
            self.line(f"if {name} is None: {name} = ()")
        n = self.new("n")
        self.line(f"{n} = len({name})")
        self.length(n, "i")
        self.elements(struct, field, name, n)
        self.depth -= field.nullable

    def elements(self, struct: type[Struct], field: Field, name: str, n: str) -> None:
        if field.type in FIXED and field.type != "uuid":
            self.line(f'if {n}: {self.put}(pack(f">{{{n}}}{FIXED[field.type]}", *{name}))')
            return
        element = self.new("e")
        self.line(f"for {element} in {name}:")
        self.depth += 1
        inner = nested(struct, field.type)
        if inner is None:
            self.field(struct, field._replace(is_array=False, nullable=False), element)
        else:
            self.struct(inner, element)
        self.flush()
        self.depth -= 1

    def tags(self, struct: type[Struct], tagged: list[Field], value: str) -> None:
        """The tagged section: fields that differ from their default, by rising tag."""
        self.flush()
        outer = self.put
        count, pieces = self.new("n"), self.new("pieces")
        self.line(f"{count} = 0; {pieces} = []")
        for field in tagged:
            default, body = self.new("default"), self.new("body")
            self.names[default] = getattr(struct(), field.name)
            self.line(f"if {value}.{field.name} != {default}:")
            self.depth += 1
            self.line(f"{count} += 1; {body} = []")
            self.put = f"{body}.append"
            self.field(struct, field, f"{value}.{field.name}")
            self.flush()
            self.line(f"{body} = join({body})")
            self.line(f"{pieces} += (uvarint({field.tag}), uvarint(len({body})), {body})")
            self.depth -= 1
        self.put = outer
        self.line(f"{outer}(UVARINT[{count}])")
        self.line(f"if {count}: {outer}(join({pieces}))")
