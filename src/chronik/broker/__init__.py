"""Async drivers around the pure cores: partitions, group commit, waiters, fetch sessions, metrics.

Touches: disk threads and the event loop's clock. May import: `storage`, the pure cores, `wire`,
`trace`, `model`. Driven by: `handlers` and `node`. Start at `partition.py`, then `commit.py`.
"""
