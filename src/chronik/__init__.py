"""Chronik: a Kafka-compatible log that can prove it delivered every acknowledged message."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chronik.embedded import EmbeddedBroker, embedded

__all__ = ["EmbeddedBroker", "embedded"]


def __getattr__(name: str) -> Any:
    """`chronik.embedded` is loaded when it is asked for: most of the rooms never need it."""
    if name in __all__:
        return getattr(importlib.import_module("chronik.embedded"), name)
    raise AttributeError(f"module 'chronik' has no attribute {name!r}")
