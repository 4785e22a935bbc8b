"""One row per process, stretch and block of a log: what its rows there add up to.

A block is a number of consecutive offsets of a key. Two sets of rows are taken for equal if count,
the sums of offset, sequence and checksum, and sum and exclusive or of a 64-bit hash agree: any
single change breaks a plain sum for certain, several must also cancel out in the hash (ADR 8).
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from chronik.audit.rows import Kind, Partition
from chronik.audit_spark.fold import COUNTS, FOLDED, MAXIMA, MINIMA, PLACE, SUMS, TEXTS
from chronik.audit_spark.order import Array

BLOCK = 1_024
"""Offsets of a block, at least."""
BLOCKS_ABOUT = 200_000
"""The blocks of a large ledger are as much larger as keeps their number near this."""
BLOCKS_MAX = 1_000_000
"""Rows of blocks that one task may bring to the driver, 350 MB; with more no block is screened."""
GROUP = (*TEXTS, *PLACE)
FINGERPRINT = (*SUMS, "hash_xor")
SCHEMA = pa.schema([(name, pa.string() if name in TEXTS else pa.int64()) for name in FOLDED])
_MERGES: dict[str, Any] = (
    dict.fromkeys((*SUMS, *COUNTS), np.add)
    | {"hash_xor": np.bitwise_xor}
    | dict.fromkeys(MINIMA, np.minimum)
    | dict.fromkeys(MAXIMA, np.maximum)
)


def block_size_for(events: int) -> int:
    """A power of two."""
    size = BLOCK
    while events > size * BLOCKS_ABOUT:
        size *= 2
    return size


def merged(parts: pa.Table) -> pa.Table:
    """One row per kind, process, stretch and block in which it has rows with an offset."""
    if not parts.num_rows:
        return parts
    columns = {name: codes(parts.column(name))[0] for name in TEXTS}
    columns |= {name: numbers(parts, name) for name in PLACE}
    order = np.lexsort([columns[name] for name in reversed(GROUP)])
    changed = np.zeros(len(order), bool)
    changed[0] = True
    for name in GROUP:
        ordered = columns[name][order]
        changed[1:] |= ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(changed)
    kept = parts.select(list(GROUP)).take(order[starts])
    arrays = {name: kept.column(name) for name in GROUP}
    for name, merge in _MERGES.items():
        arrays[name] = pa.array(merge.reduceat(numbers(parts, name)[order], starts))
    return pa.table([arrays[name] for name in FOLDED], schema=SCHEMA)


def numbers(table: pa.Table, name: str) -> Array:
    return table.column(name).to_numpy()


def codes(column: Any) -> tuple[Array, list[str]]:
    """A number for each text, and the texts."""
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()


class Blocks:
    """The merged rows as arrays. A *place* is a block of a key; places are numbered in order."""

    def __init__(self, table: pa.Table, size: int) -> None:
        self.table, self.size = table, size
        kinds, kind_names = codes(table.column("kind"))
        self._kinds = {name: kinds == code for code, name in enumerate(kind_names)}
        self.process, self.processes = codes(table.column("process"))
        self.partition = numbers(table, "partition")
        self._number_keys(table)
        self._number_places()

    def _number_keys(self, table: pa.Table) -> None:
        topic, topics = codes(table.column("topic"))
        pairs, self.key = np.unique(np.stack([topic, self.partition]), axis=1, return_inverse=True)
        self.keys = [Partition(topics[t], p) for t, p in pairs.T.tolist()]

    def _number_places(self) -> None:
        block = numbers(self.table, "block")
        self._width = int(block.max(initial=0)) + 2
        assert len(self.keys) * self._width < 1 << 62, "keys and blocks make one number"
        self._codes, self.place = np.unique(self.key * self._width + block, return_inverse=True)
        self.place_key, self.place_block = np.divmod(self._codes, self._width)

    @property
    def places(self) -> int:
        return len(self._codes)

    def column(self, name: str) -> Array:
        return numbers(self.table, name)

    def of_kind(self, kind: Kind) -> Array:
        """Which rows are of this kind."""
        return self._kinds.get(str(kind), np.zeros(len(self.place), bool))

    def find(self, key: Array | int, block: Array | int) -> Array:
        """The first place at or behind a block; of the next key, if there is none in this one."""
        within = np.clip(block, 0, self._width - 1)
        return np.searchsorted(self._codes, np.asarray(key) * self._width + within)

    def marked(self, rows: Array) -> Array:
        """The places of some rows, as a mask."""
        mask = np.zeros(self.places, bool)
        mask[self.place[rows]] = True
        return mask

    def per_place(self, rows: Array, name: str, merge: Any, empty: int) -> Array:
        """A column of some rows merged per place; `empty` where there are none."""
        found = np.full(self.places, empty, np.int64)
        merge.at(found, self.place[rows], self.column(name)[rows])
        return found

    @cached_property
    def sends(self) -> Array:
        return self.of_kind(Kind.SEND)

    @cached_property
    def records(self) -> Array:
        return self.of_kind(Kind.RECORD)

    @cached_property
    def sent(self) -> dict[str, Array]:
        """Per place, what the acked sends of all producers add up to."""
        empty = dict.fromkeys(("offset_min", "end_ns_min"), 1 << 62) | {"offset_max": -1}
        return {
            name: self.per_place(self.sends, name, _MERGES[name], empty.get(name, 0))
            for name in (*FINGERPRINT, "offset_min", "offset_max", "end_ns_min")
        }

    def by_producer(self) -> Iterator[tuple[int, Array]]:
        """Per key and producer: the key, and the places of its sends in order."""
        rows = np.flatnonzero(self.sends)
        rows = rows[np.lexsort([self.place[rows], self.process[rows], self.key[rows]])]
        key, process = self.key[rows], self.process[rows]
        changed = (key[1:] != key[:-1]) | (process[1:] != process[:-1])
        for part in np.split(rows, np.flatnonzero(changed) + 1):
            if len(part):
                yield int(self.key[part[0]]), np.unique(self.place[part])

    def chosen(self, mask: Array) -> dict[tuple[str, int], Array]:
        """The numbers of the blocks that a mask chooses, per key."""
        index = np.flatnonzero(mask)
        keys = self.place_key[index]
        found = {}
        for key in np.unique(keys).tolist():
            found[tuple(self.keys[key])] = self.place_block[index[keys == key]]
        return found
