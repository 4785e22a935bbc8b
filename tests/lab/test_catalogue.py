"""The list of defects agrees with what installs them and with what the auditor can say."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import chronik
from chronik.audit.diagnosis import RANKS
from chronik.cli.lab import command
from chronik.lab import faults
from chronik.lab.catalogue import BY_NAME, CATALOGUE
from chronik.lab.faults import SIZES_FILE, SyncedSizes, power_cut
from chronik.lab.replacing import replace
from chronik.lab.seams import DEFECTS


def test_every_defect_can_be_installed_and_every_installer_is_listed() -> None:
    assert {one.name for one in CATALOGUE} == set(DEFECTS)
    assert len(CATALOGUE) == 15


def test_every_defect_is_called_as_what_it_replaces() -> None:
    """In a process of its own: a part stays replaced."""
    install = "from chronik.lab.seams import DEFECTS\nfor install in DEFECTS.values(): install()"
    subprocess.run([sys.executable, "-c", install], check=True, timeout=30)


@pytest.mark.parametrize("name", [one.name for one in CATALOGUE])
def test_what_is_expected_is_something_the_auditor_says(name: str) -> None:
    defect = BY_NAME[name]
    assert defect.cause in RANKS
    audit = Path(chronik.__file__).parent / "audit"
    assert any(f'{defect.anomaly}"' in path.read_text() for path in audit.glob("*.py"))
    assert set(defect.faults) <= set(faults.FAULTS)


def test_the_product_knows_nothing_of_the_lab() -> None:
    """Defects live in this room alone: no other module but its command names it."""
    source = Path(chronik.__file__).parent
    rooms = [path for path in source.rglob("*.py") if "lab" not in path.relative_to(source).parts]
    naming = [path for path in rooms if "chronik.lab" in path.read_text()]
    assert {path.relative_to(source).as_posix() for path in naming} <= {
        "cli/__init__.py",
        "cli/lab.py",
    }


def test_a_part_that_does_not_exist_cannot_be_replaced() -> None:
    class Owner:
        part = 1

    assert replace(Owner, "part", 2) == 1
    assert Owner.part == 2
    with pytest.raises(AttributeError):
        replace(Owner, "renamed", 2)


def test_a_part_that_is_called_with_more_cannot_be_replaced_by_one_that_takes_less() -> None:
    class Owner:
        def part(self, one: int, two: int = 0) -> int:
            return one + two

    with pytest.raises(TypeError, match=r"called with .*two: int = 0"):
        replace(Owner, "part", lambda self, one: one)
    replace(Owner, "part", lambda self, one, two=0: one)
    assert Owner().part(3, 4) == 3


def test_a_power_cut_takes_what_was_not_synced(tmp_path: Path) -> None:
    folder = tmp_path / "topics" / "t-0"
    folder.mkdir(parents=True)
    disk = SyncedSizes(str(tmp_path))
    file = disk.create(str(folder / "00000000000000000000.log"))
    disk.pwritev(file, [b"synced"], 0)
    disk.fdatasync(file)
    disk.pwritev(file, [b" and not"], 6)
    disk.close(file)
    assert power_cut(tmp_path) == 8
    assert (folder / "00000000000000000000.log").read_bytes() == b"synced"
    assert (tmp_path / SIZES_FILE).exists()


def test_list_names_every_defect() -> None:
    told = CliRunner().invoke(command, ["list"], env={"COLUMNS": "160"})
    assert told.exit_code == 0
    assert all(name in told.output for name in BY_NAME)


def test_an_unknown_defect_is_wrong_usage() -> None:
    told = CliRunner().invoke(command, ["run", "gremlins"])
    assert told.exit_code == 2
    assert "gremlins" in told.output


def test_a_folder_with_a_run_is_not_used_again(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    told = CliRunner().invoke(command, ["run", "none", "--keep", str(tmp_path)])
    assert told.exit_code == 2
    assert "already" in told.output
