"""The judgement over kafka-python's integration tests; `make conformance` fetches and runs them."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FAILED = "test_a::test_failed"
SKIPPED = "test_a::test_skipped[x]"
LISTED = """
kafka_python = "1.0"
total = 3

[[except]]
needs = "ACLs"
reason = "not served"
outcome = "failed"
message = "no ACLs here"
tests = ["test_a::test_failed"]

[[except]]
needs = "SASL"
reason = "skipped by itself"
outcome = "skipped"
message = ""
tests = ["test_a::test_skipped[x]"]
"""
REPORT = """<testsuites><testsuite>
<testcase classname="test.integration.test_a" name="test_passed"/>
<testcase classname="test.integration.test_a" name="test_failed">
<error message="Error: no ACLs here">E   Error</error></testcase>
<testcase classname="test.integration.test_a" name="test_skipped[x]"><skipped message="off"/>
</testcase></testsuite></testsuites>"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = ROOT / "tools" / "conformance.py"
    spec = importlib.util.spec_from_file_location("conformance_tool", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_list_says(tool: ModuleType) -> None:
    expected = tool.read_expected(tool.EXPECTED.read_text())
    assert tool.PAGE.read_text() == tool.page(expected), "run 'make conformance'"


def test_the_list_is_for_the_locked_version(tool: ModuleType) -> None:
    expected = tool.read_expected(tool.EXPECTED.read_text())
    assert expected.version == tool.locked_version(tool.LOCK.read_text())


def test_pip_is_given_the_hashes_of_that_package_only(tool: ModuleType) -> None:
    lines = tool.locked_lines(tool.LOCK.read_text()).splitlines()
    assert lines[0].startswith("kafka-python==")
    assert len(lines) > 1
    assert all("--hash=sha256:" in line for line in lines[1:])


def test_no_test_is_listed_twice(tool: ModuleType) -> None:
    expected = tool.read_expected(tool.EXPECTED.read_text())
    tests = [test for one in expected.exemptions for test in one.tests]
    assert len(tests) == len(set(tests))


def test_outcomes_as_listed_are_no_difference(tool: ModuleType) -> None:
    expected, found = tool.read_expected(LISTED), tool.read_report(REPORT)
    assert list(tool.differences(expected, found)) == []
    assert [expected.count(kind) for kind in ("passed", "failed", "skipped")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("test", "outcome", "said"),
    [
        ("test_a::test_passed", ("failed", "E   boom"), "failed, expected passed: E boom"),
        ("test_a::test_passed", ("skipped", "no zstd"), "skipped, expected passed: no zstd"),
        (FAILED, ("passed",), "passed, expected failed"),
        (FAILED, ("failed", "E   a crash"), "failed for another reason: E a crash"),
        (SKIPPED, ("failed", "x"), "failed, expected skipped"),
    ],
)
def test_any_other_outcome_is_a_difference(
    tool: ModuleType, test: str, outcome: tuple[str, ...], said: str
) -> None:
    found: dict[str, Any] = tool.read_report(REPORT)
    found[test] = tool.Outcome(*outcome)
    (difference,) = tool.differences(tool.read_expected(LISTED), found)
    assert f"{test} {said}" in difference


def test_a_test_more_or_less_is_a_difference(tool: ModuleType) -> None:
    expected, found = tool.read_expected(LISTED), tool.read_report(REPORT)
    more = {**found, "test_a::test_new": tool.Outcome("passed")}
    assert list(tool.differences(expected, more)) == ["4 tests ran, 3 were expected"]
    less = {name: outcome for name, outcome in found.items() if name != FAILED}
    assert list(tool.differences(expected, less)) == [
        "2 tests ran, 3 were expected",
        f"{FAILED} does not exist",
    ]
