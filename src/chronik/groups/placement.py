"""Which partition of `__consumer_offsets`, and so which node, coordinates a group."""

from functools import lru_cache

_REMEMBERED = 10_000


@lru_cache(_REMEMBERED)
def partition_for(group_id: str, partition_count: int) -> int:
    """Kafka's choice: Java's `String.hashCode`, made positive, modulo the partitions."""
    value = 0
    utf16 = group_id.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(utf16), 2):
        unit = (utf16[position] << 8) | utf16[position + 1]
        value = (31 * value + unit) & 0xFFFFFFFF
    signed = value - 2**32 if value >= 2**31 else value
    # Java has no positive counterpart of the smallest integer; Kafka takes 0 for it.
    return 0 if signed == -(2**31) else abs(signed) % partition_count
