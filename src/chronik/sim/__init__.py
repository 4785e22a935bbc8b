"""The world in which Chronik is tested without machines: one seed decides everything that happens.

Touches: nothing outside memory. May import: all rooms below. Driven by: tests, `chronik simulate`.
Start reading at `disk.py`, the disk that forgets what was not synced; then `raft_world.py` (the
metadata log) and `replica_world.py` (a partition and its replicas).
"""
