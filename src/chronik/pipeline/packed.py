"""Work for the tasks of a Python source of Spark, in an option of the reader."""

import base64
import pickle
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

_OPTION = "secret.work"
"""The name has a word that Spark redacts in plans: passwords of stores and registries are in it."""


def load(spark: SparkSession, source: str, work: object) -> DataFrame:
    """What a source makes of this work."""
    packed = base64.b64encode(pickle.dumps(work)).decode()
    return spark.read.format(source).option(_OPTION, packed).load()


def unpacked(options: Mapping[str, str]) -> Any:
    """The work that `load` packed."""
    return pickle.loads(base64.b64decode(options[_OPTION]))
