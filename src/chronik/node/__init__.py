"""One node of a cluster, whole: every part is built once, started in order, stopped in reverse.

Touches: everything, through the parts. May import: `net` and below. Driven by: `cli`, `embedded`.
Start reading at `node.py`, the life of a node; `building.py` shows which part knows which.
"""
