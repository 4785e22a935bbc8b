"""The last offset of each key in the dirty part of a log: what compaction decides by.

The map is bounded. Where the dirty part has more keys than fit, the map covers a prefix of it and
`end_offset` says how far; the rest stays dirty for the next cleaning, as in Kafka.
"""

from collections.abc import Iterator
from hashlib import blake2b

from chronik.model.limits import OFFSET_MAP_BYTES_MAX
from chronik.storage.compaction_records import Pace, records_of, walk
from chronik.wire.records import HEADER_SIZE, BatchHeader

ENTRY_BYTES = 160
"""A key of at most 16 bytes, its offset and their place in a dict, as CPython stores them."""
DIGEST_BYTES = 16
_SHARDS = 64
"""Many small dicts: growing or freeing a single large one would hold the interpreter for long."""
_HASH_SHIFT = 32
"""Shards are chosen by bits of the hash that the dicts inside them do not begin with."""
_COMMIT_MARKER = 1


class OffsetMap:
    """Keys (long ones by digest) and their last offsets."""

    __slots__ = ("_shards", "capacity", "count", "end_offset")

    def __init__(self, bytes_max: int = OFFSET_MAP_BYTES_MAX) -> None:
        self._shards: list[dict[bytes, int]] = [{} for _ in range(_SHARDS)]
        self.capacity = max(bytes_max // ENTRY_BYTES, 1)
        self.count = 0
        self.end_offset = 0
        """Records from here on are not judged by this map."""

    def put(self, key: bytes, offset: int) -> None:
        """Takes note of a later record of the key."""
        name = key if len(key) < DIGEST_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()
        shard = self._shards[hash(name) >> _HASH_SHIFT & (_SHARDS - 1)]
        if name not in shard:
            self.count += 1
        shard[name] = offset

    def last_offset(self, key: bytes) -> int:
        """Offset of the key's last record in the dirty part; -1 where it has none there."""
        name = key if len(key) < DIGEST_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()
        return self._shards[hash(name) >> _HASH_SHIFT & (_SHARDS - 1)].get(name, -1)

    def clear(self, pace: Pace) -> None:
        """Frees the memory in small portions."""
        for shard in self._shards:
            shard.clear()
            pace()


class MapBuilder:
    """Fills a map from the dirty batches, in the order of the log.

    Records of a transaction count once its commit marker is met: an aborted record must not hide
    the committed one before it.
    """

    __slots__ = ("_map", "_open", "_open_count", "_pace", "first_dirty_offset", "full")

    def __init__(self, offsets: OffsetMap, first_dirty_offset: int, pace: Pace) -> None:
        self._map = offsets
        self._pace = pace
        self._open: dict[int, list[tuple[bytes, int]]] = {}
        self._open_count = 0
        self.first_dirty_offset = first_dirty_offset
        self.full = False
        offsets.end_offset = first_dirty_offset

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        """Takes note of a batch's keys; `full` afterwards where not all of them fitted."""
        if header.last_offset < self.first_dirty_offset:
            return
        if header.is_control:
            self._end_transaction(header, batch)
        else:
            for key, offset in self._keys(header, batch):
                if self._map.count + self._open_count >= self._map.capacity:
                    self.full = True
                    self._map.end_offset = offset
                    return
                self._put(header, key, offset)
        self._map.end_offset = header.next_offset

    def finish(self) -> None:
        """No more batches. What belongs to transactions without an end stays dirty."""
        if self._open:
            first = min(records[0][1] for records in self._open.values())
            if first > self.first_dirty_offset:
                self._map.end_offset = min(self._map.end_offset, first)

    def _keys(self, header: BatchHeader, batch: memoryview) -> Iterator[tuple[bytes, int]]:
        data = records_of(header, batch) if header.record_count else b""
        for _, _, _, offset_delta, key, _ in walk(header, data, self._pace):
            offset = header.base_offset + offset_delta
            if key is not None and offset >= self.first_dirty_offset:
                yield key, offset

    def _put(self, header: BatchHeader, key: bytes, offset: int) -> None:
        if header.is_transactional:
            self._open.setdefault(header.producer_id, []).append((key, offset))
            self._open_count += 1
        else:
            self._map.put(key, offset)

    def _end_transaction(self, header: BatchHeader, batch: memoryview) -> None:
        records = self._open.pop(header.producer_id, [])
        self._open_count -= len(records)
        if _marker(header, batch[HEADER_SIZE:]) == _COMMIT_MARKER:
            for key, offset in records:
                # Another transaction may have committed a later record of this key before.
                if offset > self._map.last_offset(key):
                    self._map.put(key, offset)


def _marker(header: BatchHeader, records: memoryview) -> int:
    """The type in a control record's key: 0 abort, 1 commit; -1 for what is neither."""
    for _, _, _, _, key, _ in walk(header, bytes(records), lambda: None):
        if key is not None and len(key) >= 4:
            return int.from_bytes(key[2:4], "big")
    return -1
