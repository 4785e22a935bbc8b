"""Partition logs on disk: segments, sparse indexes, checkpoints, recovery.

Touches: the disk, through `fs.FileSystem` only. May import: `wire`, `model`, the pure rooms.
Driven by: `broker`, whose event loop owns every `Log`; the `execute` methods of operations and
`recovery.recover` block and belong in disk threads. Start reading at `log.py`, then `operations.py`
(what happens on disk, in which order), then `recovery.py` (what a crash between two steps means).
"""
