"""Raft as a value: `step`, `tick` and `propose` change memory only; `Ready` says what to do.

Touches: nothing (no clock, chance, disk, network). May import: `model`. Driven by: the metadata
controller in `broker`, the simulator, tests. The durable log is `storage/raft_store.py`.
Start reading at `core.py`, then one role at a time: `follower.py`, `candidate.py`, `leader.py`.
Sections in comments are those of "In Search of an Understandable Consensus Algorithm" (extended
version); "thesis" is Ongaro's dissertation, for pre-vote, read index and leadership transfer.
"""
