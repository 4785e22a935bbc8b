"""Parquet files as a commit names them: the numbers of their footers, and their partition."""

from typing import Any

import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    _check_pyarrow_schema_compatible,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from chronik.pipeline.files import Written


class WrongFile(Exception):  # noqa: N818
    """A file does not hold what its writer said; it is not committed."""


def footer_of(io: FileIO, path: str) -> pq.FileMetaData:
    """What a parquet file says of itself."""
    stream: Any
    with io.new_input(path).open() as stream:
        return pq.read_metadata(stream)


def described(io: FileIO, metadata: TableMetadata, written: Written) -> DataFile:
    """The file with the statistics of its footer; its rows are counted again there.

    pyiceberg derives the partition from the statistics, which a hash does not allow: here the
    writer says it.
    """
    footer = footer_of(io, written.path)
    if footer.num_rows != written.rows:
        raise WrongFile(f"{written.path}: {footer.num_rows} rows, {written.rows} were written")
    schema = metadata.schema()
    arrow = footer.schema.to_arrow_schema()
    _check_pyarrow_schema_compatible(schema, arrow, format_version=metadata.format_version)
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=written.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*written.partition),
        file_size_in_bytes=len(io.new_input(written.path)),
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
