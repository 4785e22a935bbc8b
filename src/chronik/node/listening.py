"""Taking a port, and saying what to do where that fails."""

import errno
import socket
from collections.abc import Coroutine
from typing import Any


class ListenError(OSError):
    """An address cannot be listened on; the message says which, why and what to do."""

    def __str__(self) -> str:
        return str(self.strerror)


async def listening(option: str, host: str, port: int, bind: Coroutine[Any, Any, int]) -> int:
    """The port that was bound; `option` is what a user changes to choose another one."""
    try:
        return await bind
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ListenError(
                error.errno,
                f"port {port} on {host} is taken: stop what listens there, "
                f"or choose another with {option}",
            ) from error
        message = f"cannot listen on {host}:{port} ({option}): {_reason(error)}"
        raise ListenError(error.errno, message) from error


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "no such host; name an address of this machine"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address; name one that it has"
    if error.errno == errno.EACCES:
        return "permission denied; ports below 1024 are root's, choose another"
    return error.strerror or str(error)
