"""Where files are: in a folder of this machine, or in a store with an address and credentials.

The properties are pyiceberg's (`s3.endpoint`, `s3.access-key-id`, ...): those of the catalog, and
those that a REST catalog hands out with a table. They travel to the tasks, which write and read
there without the JVM.
"""

import functools
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
from pyiceberg.io.pyarrow import PyArrowFileIO

Access = Mapping[str, str]
"""How a store is reached. Where it says nothing, Arrow looks into the environment itself."""
_OF_STORES = ("s3.", "client.", "gcs.", "adls.", "hdfs.", "oss.", "hf.")


def access_in(properties: Mapping[str, str]) -> dict[str, str]:
    """What of a catalog's properties is about the store; its own secrets are nobody's business."""
    return {name: str(value) for name, value in properties.items() if name.startswith(_OF_STORES)}


def is_remote(uri: str) -> bool:
    """Whether it is no path of this machine."""
    return "://" in uri and not uri.startswith("file://")


def located(uri: str, access: Access) -> tuple[pyarrow.fs.FileSystem, str]:
    """The file system of a file or folder, and its path there."""
    if not is_remote(uri):
        return pyarrow.fs.FileSystem.from_uri(uri)
    scheme, place, path = PyArrowFileIO.parse_location(uri)
    return _store(scheme, place, tuple(sorted(access.items()))), path


@functools.lru_cache(16)
def _store(scheme: str, place: str, access: tuple[tuple[str, str], ...]) -> pyarrow.fs.FileSystem:
    return PyArrowFileIO(dict(access)).fs_by_scheme(scheme, place)


def dataset_of(files: Sequence[str], schema: pa.Schema, access: Access) -> ds.Dataset:
    """The rows of parquet files of one store; columns that a file lacks are null."""
    found = [located(one, access) for one in files]
    paths = [path for _, path in found]
    return ds.dataset(paths, schema=schema, filesystem=found[0][0], format="parquet")
