"""What is not imported: three nodes that start on one machine load everything three times."""

import subprocess
import sys

import crc32c as package
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.model.crc import crc32c


@pytest.mark.parametrize(
    ("started", "unwanted"),
    [
        ("chronik.node.node", ("importlib.metadata", "email", "cramjam", "pyarrow", "kio")),
        ("chronik.cli.up", ("asyncio", "ssl", "logging", "uvloop", "chronik.node")),
        ("chronik.cli._supervisor", ("asyncio", "ssl", "logging")),
    ],
)
def test_a_start_does_not_load_what_it_does_not_need(
    started: str, unwanted: tuple[str, ...]
) -> None:
    program = f"import sys, {started}; print([one for one in {unwanted} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


@given(st.binary(), st.integers(0, 2**32 - 1))
def test_the_checksum_is_that_of_the_package(data: bytes, before: int) -> None:
    assert crc32c(data) == package.crc32c(data)
    assert crc32c(memoryview(bytearray(data)), before) == package.crc32c(data, before)


def test_the_checksum_is_crc_32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283
