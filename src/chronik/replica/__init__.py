"""One partition's replica as a value that changes in single steps: offsets, watermark, producers.

Touches: nothing. May import: `wire`, `model`. Driven by: `broker/partition.py`, the simulator.
Start reading at `state.py` (append, durable, watermark), then `producers.py` (idempotence).
"""
