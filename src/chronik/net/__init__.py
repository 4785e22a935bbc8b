"""Sockets: the Kafka listener and its connections, and the operator's HTTP pages.

Touches: the network. May import: `handlers`, `broker` and below. Driven by: `node`.
Start reading at `connection.py` for Kafka clients, at `http.py` for people and Prometheus.
"""
