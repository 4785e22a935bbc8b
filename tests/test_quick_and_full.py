"""`make check` leaves out integration tests and sweeps; `make test` leaves out nothing."""

import re
from pathlib import Path

import pytest
from tests.conftest import INTEGRATION_ALL, INTEGRATION_FILE, ROOT, pytest_ignore_collect

MAKEFILE = (ROOT / "Makefile").read_text()


def recipe(target: str) -> str:
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_full_run_selects_nothing() -> None:
    pytest_lines = [line for line in recipe("test").splitlines() if "/pytest" in line]
    assert len(pytest_lines) == 2, "the clusters, and everything but the clusters"
    assert not any(re.search(r"\s-[mk]\s", line) for line in pytest_lines)
    assert "$(addprefix --ignore ,$(CLUSTERS))" in pytest_lines[0]
    assert pytest_lines[1].endswith("$(CLUSTERS)")


def test_the_quick_run_fails_where_tests_or_static_checks_do() -> None:
    assert "exit $$((tests | static))" in recipe("check")


def test_every_file_of_a_folder_that_is_not_collected_is_marked() -> None:
    for folder in INTEGRATION_ALL:
        files = sorted((ROOT / "tests" / folder).glob("test_*.py"))
        assert files
        marks_all = (
            "add_marker(pytest.mark.integration)"
            in (ROOT / "tests" / folder / "conftest.py").read_text()
        )
        assert marks_all or all(INTEGRATION_FILE.search(file.read_text()) for file in files)


@pytest.mark.parametrize(
    ("text", "is_left_out"),
    [
        ("pytestmark = pytest.mark.integration\n", True),
        ("pytestmark = [pytest.mark.integration, pytest.mark.spark]\n", True),
        ("@pytest.mark.integration\ndef test_one() -> None: ...\n", False),
        ("pytestmark = pytest.mark.sweep\n", False),
    ],
)
def test_only_files_of_integration_tests_alone_are_left_out(
    tmp_path: Path, pytestconfig: pytest.Config, text: str, is_left_out: bool
) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(f"import pytest\n\n{text}")
    asked = pytestconfig.option.markexpr
    try:
        pytestconfig.option.markexpr = "not integration and not soak"
        assert bool(pytest_ignore_collect(file, pytestconfig)) is is_left_out
        pytestconfig.option.markexpr = ""
        assert not pytest_ignore_collect(file, pytestconfig)
    finally:
        pytestconfig.option.markexpr = asked
