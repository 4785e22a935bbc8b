"""The protocol, one API = one file: each turns a request into calls on `broker` and back.

Touches: nothing itself. May import: `broker`, `wire`, `model`, never another handler.
Driven by: `net/connection.py` through `table.py`, the one list of what is served; ApiVersions and
the protocol page are computed from it. Start reading at `call.py`, then `metadata.py`.
"""
