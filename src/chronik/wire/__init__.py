"""Bytes of the Kafka protocol in, plain values out, and back: headers, bodies, record batches.

Touches: nothing (sans-IO). May import: `model`. Driven by: `net`, `handlers`, `audit`, tests.
Start reading at `headers.py`, then `codec.py`; `produce.py` and `fetch.py` are the hot path.
"""
