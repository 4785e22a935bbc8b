"""The text of a .proto schema to descriptors, by protoc itself, which `grpcio-tools` bundles.

A schema may import Google's well-known types, which protoc has, and files that the registry knows
as its references.
"""

import functools
import importlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chronik.pipeline.registry import Registry

ROOT = "the-schema-itself.proto"
SCHEMAS_KEPT_MAX = 256
"""A worker lives longer than its tasks, and protoc takes milliseconds for each schema."""
File = tuple[str, str]
"""The name that imports have for it, and its text."""


class NoProtobufError(Exception):
    """The packages that read Protobuf are not installed."""


class BadSchema(Exception):  # noqa: N818
    """protoc does not take the schema; what it says of it goes to stderr."""


def library(name: str) -> Any:
    """A module of protobuf or grpcio-tools, only where Protobuf is read."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NoProtobufError(
            "Protobuf needs the packages 'protobuf' and 'grpcio-tools': "
            "pip install 'chronik[protobuf]'"
        ) from error


def require() -> None:
    """Says what to install before anything begins."""
    library("google.protobuf")
    library("grpc_tools.protoc")


@dataclass(frozen=True)
class Compiled:
    """A schema with everything that it imports."""

    pool: Any
    root: Any
    """The FileDescriptorProto of the schema's own file."""

    def message(self, indexes: tuple[int, ...]) -> Any:
        """The descriptor of a message by its place among its siblings; None where there is none.

        The entries of maps are messages too, but nobody wrote them into the schema, and the
        reference serializer does not count them.
        """
        names = [self.root.package] if self.root.package else []
        siblings = self.root.message_type
        for index in indexes:
            written = [one for one in siblings if not one.options.map_entry]
            if not 0 <= index < len(written):
                return None
            names.append(written[index].name)
            siblings = written[index].nested_type
        return self.pool.FindMessageTypeByName(".".join(names))


def imports(registry: Registry, answer: dict[str, Any]) -> tuple[File, ...]:
    """The files that a schema of the registry refers to, and those that they refer to."""
    found: dict[str, str] = {}
    waiting = list(answer.get("references") or [])
    while waiting:
        one = waiting.pop()
        if one["name"] not in found:
            referred = registry.version(one["subject"], one["version"])
            found[one["name"]] = referred["schema"]
            waiting += referred.get("references") or []
    return tuple(sorted(found.items()))


@functools.lru_cache(SCHEMAS_KEPT_MAX)
def compiled(text: str, imported: tuple[File, ...] = ()) -> Compiled:
    """Runs protoc, within this process."""
    descriptors = library("google.protobuf.descriptor_pb2")
    pool = library("google.protobuf.descriptor_pool").DescriptorPool()
    files = descriptors.FileDescriptorSet.FromString(_protoc(text, imported)).file
    try:
        for one in files:  # every file comes after those that it imports
            pool.Add(one)
        pool.FindFileByName(ROOT)
    except (TypeError, KeyError) as error:
        raise BadSchema(str(error)) from error
    return Compiled(pool, next(one for one in files if one.name == ROOT))


def _protoc(text: str, imported: tuple[File, ...]) -> bytes:
    protoc = library("grpc_tools.protoc")
    known = Path(library("grpc_tools").__file__).parent / "_proto"
    with tempfile.TemporaryDirectory(prefix="chronik-proto-") as name:
        folder = Path(name).resolve()
        for file, content in ((ROOT, text), *imported):
            path = (folder / file).resolve()
            if not path.is_relative_to(folder):
                raise BadSchema(f"'{file}' is no name of a file to import")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        target = folder / "set"
        arguments = [f"-I{folder}", f"-I{known}", "--include_imports"]
        if protoc.main(["protoc", *arguments, f"--descriptor_set_out={target}", ROOT]) != 0:
            raise BadSchema("protoc does not take the schema")
        return target.read_bytes()
