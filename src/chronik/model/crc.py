"""CRC-32C, from the C half of the `crc32c` package alone.

Its Python half asks for its own version, and so imports `importlib.metadata`, e-mail parser and
zip files included: a tenth of what a node imports until it serves.
"""

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Protocol, cast


class Crc(Protocol):
    """The function of the package."""

    def __call__(self, data: bytes | bytearray | memoryview, value: int = 0, /) -> int: ...


def _load() -> Crc:
    package = PathFinder.find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", places) if places else None
    if spec is None or spec.loader is None:
        import crc32c as whole  # noqa: PLC0415 - installed in another way: as it comes

        return whole.crc32c
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Crc", module.crc32c)


crc32c = _load()
"""The checksum of some bytes; a second argument is that of the bytes before them."""
