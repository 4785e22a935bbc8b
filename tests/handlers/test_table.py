"""The handler table, and what is computed from it."""

import ast
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from chronik.handlers.peer_table import PEER_TABLE
from chronik.handlers.router import error_body
from chronik.handlers.table import TABLE
from chronik.model.errors import ErrorCode
from chronik.wire.apis import ADVERTISED, ApiKey, is_served
from chronik.wire.codec import decode

ROOT = Path(__file__).parents[2]


def _tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_protocol_page_is_what_the_table_says() -> None:
    tool = _tool("generate_protocol_page")
    assert tool.PAGE.read_text() == tool.page(), "run 'make generate'"


def test_fm31_an_error_is_answered_as_one_in_every_version_or_not_at_all() -> None:
    """Responses hold the fields of all versions: one that this version lacks tells nobody."""
    for api in TABLE.values():
        for version in range(api.advertised.first, api.advertised.last + 1):
            first, last = api.served
            if not first <= version <= last:
                continue
            body = error_body(api.response, version, ErrorCode.NOT_CONTROLLER)
            if body is not None:
                answer: Any = decode(api.response, version, body)
                assert answer.error_code == ErrorCode.NOT_CONTROLLER, (api.key, version)


def test_fm30_consumers_take_turns_and_neither_producers_nor_followers_wait_for_them() -> None:
    assert [api.key for api in TABLE.values() if api.patient] == [ApiKey.FETCH]
    assert not any(api.patient for api in PEER_TABLE.values())


def test_every_api_has_one_way_in_and_serves_its_last_version() -> None:
    for key, api in TABLE.items():
        assert (api.handle is None) != (api.fast is None), api.key
        assert key == api.key == api.request.API_KEY == api.response.API_KEY
        assert isinstance(api.key, ApiKey)
        assert is_served(api.key, ADVERTISED[api.key].last)


def test_one_api_is_one_file() -> None:
    folder = ROOT / "src" / "chronik" / "handlers"
    shared = {"__init__", "api", "call", "peer_table", "router", "table"}
    parts = {"produce_answer", "produce_results", "replica_fetch"}
    files = {path.stem for path in folder.glob("*.py")} - shared - parts
    assert files == {api.key.name.lower() for api in TABLE.values()}


def test_a_handler_never_imports_another_handler() -> None:
    folder = ROOT / "src" / "chronik" / "handlers"
    names = {api.key.name.lower() for api in TABLE.values()}
    for name in names:
        tree = ast.parse((folder / f"{name}.py").read_text())
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not imported & {f"chronik.handlers.{other}" for other in names}, name
