"""Writes `src/chronik/wire/messages/` from the schema that kio holds.

Usage: python tools/generate_messages.py [DIRECTORY]

kio has one class per struct and version. Here the versions of a struct become one class with the
union of their fields and a table that says which version has which. kio is needed only to run
this tool and the tests; the output is committed.
"""

import dataclasses
import sys
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import NoneType
from typing import Any, Literal, cast

from kio.index import load_entity_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

# fmt: off
APIS = [
    "produce", "fetch", "list_offsets", "metadata", "offset_commit", "offset_fetch",
    "find_coordinator", "join_group", "heartbeat", "leave_group", "sync_group",
    "describe_groups", "list_groups", "sasl_handshake", "api_versions", "create_topics",
    "delete_topics", "delete_records", "init_producer_id", "offset_for_leader_epoch",
    "add_partitions_to_txn", "add_offsets_to_txn", "end_txn", "write_txn_markers",
    "txn_offset_commit", "describe_acls", "create_acls", "delete_acls", "describe_configs",
    "alter_configs", "alter_replica_log_dirs", "describe_log_dirs", "sasl_authenticate",
    "create_partitions", "delete_groups", "elect_leaders", "incremental_alter_configs",
    "alter_partition_reassignments", "list_partition_reassignments", "offset_delete",
    "describe_client_quotas", "alter_client_quotas", "describe_user_scram_credentials",
    "alter_user_scram_credentials", "alter_partition", "describe_quorum", "update_features",
    "describe_cluster", "describe_producers", "broker_registration", "broker_heartbeat",
    "unregister_broker", "describe_transactions", "list_transactions", "allocate_producer_ids",
    "consumer_group_heartbeat", "consumer_group_describe", "list_config_resources",
    "describe_topic_partitions", "consumer_protocol_subscription",
    "consumer_protocol_assignment", "end_quorum_epoch", "add_raft_voter", "remove_raft_voter",
]
# fmt: on

WIRE_TYPES = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
PYTHON_TYPES = {
    "string": "str",
    "bytes": "bytes",
    "records": "bytes",
    "uuid": "bytes",
    "bool": "bool",
    "float64": "float",
}
ZERO_VALUES = {
    "string": '""',
    "bytes": 'b""',
    "records": "None",
    "uuid": "ZERO_UUID",
    "bool": "False",
    "float64": "0.0",
}
NULL_BY_DEFAULT = {
    ("ConsumerGroupHeartbeatRequest", "topic_partitions"),
    ("ListPartitionReassignmentsRequest", "topics"),
}
"""Arrays whose default null, stated in Kafka's definitions, kio does not carry."""
OUTPUT = Path(__file__).parent.parent / "src/chronik/wire/messages"
LINE_LENGTH = 100
NEW = "new"
"""Default of a struct that is made anew for each object."""

Entity = type[Any]
Kind = Literal[EntityType.request, EntityType.response, EntityType.data]
KINDS: tuple[Kind, ...] = (EntityType.request, EntityType.response, EntityType.data)


@dataclasses.dataclass
class Field:
    """One field over all versions."""

    name: str
    kafka_type: str
    is_array: bool
    default: str
    tag: int | None
    versions: set[int] = dataclasses.field(default_factory=set)
    nullable: set[int] = dataclasses.field(default_factory=set)

    @property
    def is_struct(self) -> bool:
        """Types of the protocol are in lower case, structs are not."""
        return self.kafka_type[0].isupper()

    @property
    def annotation(self) -> str:
        """The Python type, with null if any version has it."""
        inner = PYTHON_TYPES.get(self.kafka_type, self.kafka_type if self.is_struct else "int")
        plain = f"list[{inner}]" if self.is_array else inner
        return f"{plain} | None" if self.nullable or self.default == "None" else plain


@dataclasses.dataclass
class Struct:
    """One struct over all versions."""

    name: str
    base: str
    doc: str
    fields: dict[str, Field] = dataclasses.field(default_factory=dict)


def main(arguments: list[str]) -> None:
    """Writes every module and removes those that are no longer made."""
    directory = Path(arguments[0]) if arguments else OUTPUT
    directory.mkdir(parents=True, exist_ok=True)
    modules = render_all()
    for stale in set(directory.glob("*.py")) - {directory / name for name in modules}:
        stale.unlink()
    for name, text in modules.items():
        (directory / name).write_text(text)


def render_all() -> dict[str, str]:
    """File name to text, for the whole package."""
    card = '"""Generated message classes: one module per API, request and response together."""\n'
    return {"__init__.py": card} | {f"{api}.py": render_module(api) for api in APIS}


def render_module(api: str) -> str:
    """One API."""
    messages = {kind: merge_message(api, kind) for kind in KINDS if versions_of(api, kind)}
    rename_shared(messages)
    parts = [render_message(api, kind, structs) for kind, structs in messages.items()]
    title = api.replace("_", " ").capitalize()
    key = next((key for key, name in api_key_map.items() if name == api), None)
    what = f"{title} (API key {key})" if key is not None else f"{title} (inside other messages)"
    body = "\n\n".join(parts)
    names = [
        name
        for name in ("EMPTY", "Message", "Struct")
        if f"({name})" in body or f"= {name}" in body
    ]
    imports = [f"from chronik.wire.schema import {', '.join(names)}"]
    if "ZERO_UUID" in body:
        imports.insert(0, "from chronik.wire.primitives import ZERO_UUID")
    head = f'"""{what}. Generated by tools/generate_messages.py."""\n\n'
    return head + "from __future__ import annotations\n\n" + "\n".join(imports) + "\n\n\n" + body


def versions_of(api: str, kind: Kind) -> list[int]:
    """The versions in which the API has a message of this kind."""
    return sorted(version for version, kinds in schema_name_map[api].items() if kind in kinds)


def merge_message(api: str, kind: Kind) -> dict[str, Struct]:
    """The structs of one request or response over all its versions, by kio's name."""
    structs: dict[str, Struct] = {}
    for version in versions_of(api, kind):
        root = load_entity_schema(api, version, kind)
        for entity, doc in walk(root, ""):
            base = "Message" if entity is root else "Struct"
            struct = structs.setdefault(entity.__name__, Struct(entity.__name__, base, doc))
            merge(struct, entity, version)
    return structs


def rename_shared(messages: dict[Kind, dict[str, Struct]]) -> None:
    """Structs that a request and its response both call X become RequestX and ResponseX."""
    names = [set(structs) for structs in messages.values()]
    shared = set.intersection(*names) if len(names) > 1 else set()
    for kind, structs in messages.items():
        new = {name: kind.name.capitalize() + name for name in shared}
        for struct in structs.values():
            struct.name = new.get(struct.name, struct.name)
            for field in struct.fields.values():
                field.kafka_type = new.get(field.kafka_type, field.kafka_type)


def render_message(api: str, kind: Kind, structs: dict[str, Struct]) -> str:
    """One request or response: its nested structs first, then itself."""
    versions = versions_of(api, kind)
    roots = {version: load_entity_schema(api, version, kind) for version in versions}
    flexible = {version for version, root in roots.items() if root.__flexible__}
    facts = [
        f"API_KEY = {int(getattr(roots[versions[0]], '__api_key__', -1))}",
        f'VERSIONS = "{versions[0]}-{versions[-1]}"',
        f'FLEXIBLE = "{version_range(flexible, versions)}"',
    ]
    return "\n\n".join(
        render_struct(struct, facts if struct.base == "Message" else [], versions)
        for struct in holders_last(structs)
    )


def holders_last(structs: dict[str, Struct]) -> list[Struct]:
    """Each struct after those it holds."""
    by_name = {struct.name: struct for struct in structs.values()}
    ordered: dict[str, Struct] = {}

    def visit(struct: Struct) -> None:
        for field in struct.fields.values():
            if field.is_struct:
                visit(by_name[field.kafka_type])
        ordered.setdefault(struct.name, struct)

    for struct in structs.values():
        visit(struct)
    return list(ordered.values())


def walk(entity: Entity, doc: str) -> Iterator[tuple[Entity, str]]:
    """The structs of a message, each after those it holds, with the field that holds it."""
    for field in dataclasses.fields(entity):
        inner, _, _ = unfold(field.type)
        if dataclasses.is_dataclass(inner):
            yield from walk(cast("Entity", inner), f"{entity.__name__}.{field.name}")
    yield entity, doc


def unfold(annotation: Any) -> tuple[Any, bool, bool]:
    """The element type, whether it is an array, whether null is allowed."""
    arguments = typing.get_args(annotation)
    if NoneType in arguments:
        (plain,) = (argument for argument in arguments if argument is not NoneType)
        inner, is_array, _ = unfold(plain)
        return inner, is_array, True
    if typing.get_origin(annotation) is tuple:
        return arguments[0], True, False
    return annotation, False, False


def merge(struct: Struct, entity: Entity, version: int) -> None:
    """Adds one version of a struct; a new field goes before the one that follows it there."""
    following: str | None = None
    for source in reversed(dataclasses.fields(entity)):
        made = describe(source)
        if (struct.name, made.name) in NULL_BY_DEFAULT:
            made.default = "None"
        field = struct.fields.get(made.name)
        if field is None:
            insert_before(struct.fields, following, made)
            field = made
        facts = (made.kafka_type, made.is_array, made.tag, made.default)
        assert facts == (field.kafka_type, field.is_array, field.tag, field.default), (struct, made)
        field.versions.add(version)
        if made.nullable:
            field.nullable.add(version)
        following = made.name


def insert_before(fields: dict[str, Field], following: str | None, field: Field) -> None:
    """Keeps the order of the wire in every version."""
    names = list(fields)
    names.insert(len(names) if following is None else names.index(following), field.name)
    fields[field.name] = field
    ordered = {name: fields[name] for name in names}
    fields.clear()
    fields.update(ordered)


def describe(source: dataclasses.Field[Any]) -> Field:
    """One field of one version; `nullable` holds -1 if null is allowed."""
    inner, is_array, nullable = unfold(source.type)
    kio_type = source.metadata.get("kafka_type") or inner.__name__
    kafka_type = WIRE_TYPES.get(kio_type, kio_type)
    name = source.name
    if kio_type.startswith(("timedelta", "datetime")):
        name += "_ms"
    field = Field(name, kafka_type, is_array, "", source.metadata.get("tag"))
    if nullable and (is_array or kio_type not in ("uuid", "datetime_i64")):
        field.nullable.add(-1)
    field.default = default_of(source, field, kio_type)
    return field


def default_of(source: dataclasses.Field[Any], field: Field, kio_type: str) -> str:
    """The default as Python text: Kafka's if it states one, else the zero value."""
    value = source.default
    if value is dataclasses.MISSING:
        return zero(field)
    if value is None:
        special = {"uuid": "ZERO_UUID", "datetime_i64": "-1"}
        return "None" if field.is_array else special.get(kio_type, "None")
    if field.is_array:
        assert value == (), source
        return "EMPTY"
    if field.is_struct:
        return NEW
    if kio_type.startswith("timedelta"):
        return str(round(value.total_seconds() * 1000))
    return str(int(value)) if kio_type == "error_code" else repr(value).replace("'", '"')


def zero(field: Field) -> str:
    """The zero value of a field without a default of its own."""
    if field.is_array:
        return "EMPTY"
    if field.is_struct:
        return "None" if field.nullable else NEW
    return ZERO_VALUES.get(field.kafka_type, "0")


def version_range(versions: set[int], all_versions: Iterable[int]) -> str:
    """As Kafka writes it: "3+", "0-7", "5" or nothing."""
    if not versions:
        return ""
    first, last = min(versions), max(versions)
    assert versions == set(range(first, last + 1)), versions
    if last == max(all_versions):
        return f"{first}+"
    return str(first) if first == last else f"{first}-{last}"


def render_struct(struct: Struct, facts: list[str], versions: list[int]) -> str:
    """One class."""
    fields = list(struct.fields.values())
    doc = f"In `{struct.doc}`." if struct.doc else "The whole body."
    lines = [f"class {struct.name}({struct.base}):", f'    """{doc}"""', ""]
    lines += wrapped("    __slots__ = (", [f'"{field.name}"' for field in fields], ")")
    lines += [f"    {fact}" for fact in facts]
    if fields:
        lines += ["    FIELDS = (", *(row(field, versions) for field in fields), "    )", ""]
        arguments = [argument(field) for field in fields]
        lines += ["    def __init__(", "        self,"]
        lines += [f"        {text}," for text in arguments]
        lines += ["    ) -> None:", *(assignment(field) for field in fields)]
    return "\n".join(lines) + "\n"


def wrapped(opening: str, items: list[str], closing: str) -> list[str]:
    """A tuple on one line, or one item per line where it is too long."""
    comma = "," if len(items) == 1 else ""
    line = opening + ", ".join(items) + comma + closing
    if len(line) <= LINE_LENGTH:
        return [line]
    return [opening, *(f"        {item}," for item in items), "    " + closing]


def row(field: Field, versions: list[int]) -> str:
    """The field's line in the table from which readers and writers are compiled."""
    kind = ("[]" if field.is_array else "") + field.kafka_type
    present = version_range(field.versions, versions)
    nullable = version_range(field.nullable - {-1}, versions)
    return f'        ("{field.name}", "{kind}", "{present}", "{nullable}", {field.tag}),'


def argument(field: Field) -> str:
    """The field as an argument of `__init__`."""
    if field.is_struct and not field.is_array:
        return f"{field.name}: {field.annotation.removesuffix(' | None')} | None = None"
    return f"{field.name}: {field.annotation} = {field.default}"


def assignment(field: Field) -> str:
    """The field's line in `__init__`; lists and structs are made anew for each object."""
    name = field.name
    if field.default == "EMPTY":
        return f"        self.{name}: {field.annotation} = [] if {name} is EMPTY else {name}"
    if field.default == NEW:
        return f"        self.{name} = {field.kafka_type}() if {name} is None else {name}"
    return f"        self.{name} = {name}"


if __name__ == "__main__":
    main(sys.argv[1:])
