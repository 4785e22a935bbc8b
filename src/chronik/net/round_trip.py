"""How far away a client is, as the kernel saw when the connection was made."""

import socket
import struct
import sys

_MIN_RTT = struct.Struct("=148xI")
"""`tcpi_min_rtt` in Linux's `struct tcp_info`, in microseconds."""


def round_trip_us(connected: socket.socket | None) -> int | None:
    """The shortest round trip so far; None where the system does not say."""
    if connected is None or sys.platform != "linux":
        return None
    try:
        info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _MIN_RTT.size)
    except OSError:
        return None  # not TCP, or gone already
    return int(_MIN_RTT.unpack(info)[0]) if len(info) == _MIN_RTT.size else None
