"""The topics in a consumer's metadata: the v0 prefix, which all its versions share."""

from chronik.groups.fields import FieldReader, Malformed

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics, or None where the bytes are not the consumer protocol's."""
    reader = FieldReader(metadata)
    try:
        if reader.int16() < 0:
            return None
        return frozenset([reader.string() for _ in range(reader.array())])
    except Malformed:
        return None
