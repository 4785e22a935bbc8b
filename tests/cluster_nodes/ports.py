"""Ports for servers that come and go: below those that the system gives to outgoing connections."""

import contextlib
import os
import random
import socket

from tests.servers import HOST

FIRST, LAST = 15_000, 32_000
_draw = random.Random(os.getpid())


def reserve(count: int) -> int:
    """The first of `count` consecutive ports that nobody has now, and nobody gets by chance."""
    while True:
        base = _draw.randrange(FIRST, LAST - count)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(base, base + count):
                probe = stack.enter_context(socket.socket())
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((HOST, port))
            return base
