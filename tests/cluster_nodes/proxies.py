"""The network between the nodes as one TCP proxy per direction of a pair, to be cut and mended.

Node a reaches node b through `port(a, b)`. A cut holds bytes back, as a network does that loses
packets: connections stay open, and what was held back arrives when the cut is mended.
"""

import selectors
import socket
import threading

from tests.servers import HOST

CHUNK = 1 << 16


class _Pipe:
    """Bytes of one direction of one connection."""

    def __init__(self, source: socket.socket, target: socket.socket, way: tuple[int, int]) -> None:
        self.source = source
        self.target = target
        self.way = way


class Network:
    """Proxies between all pairs, in one thread."""

    def __init__(self, peer_ports: dict[int, int]) -> None:
        self._selector = selectors.DefaultSelector()
        self._cut: set[tuple[int, int]] = set()
        self._held: list[tuple[_Pipe, bytes]] = []
        self._ports: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()
        self._ended = False
        for source in peer_ports:
            for target, port in peer_ports.items():
                if source != target:
                    self._listen(source, target, port)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def port(self, source: int, target: int) -> int:
        """Where `source` finds `target`."""
        return self._ports[source, target]

    def cut(self, source: int, target: int) -> None:
        """Nothing that `source` sends reaches `target` any more."""
        with self._lock:
            self._cut.add((source, target))

    def isolate(self, node: int) -> None:
        """Nothing reaches the node, and nothing leaves it."""
        for one, other in list(self._ports):
            if node in {one, other}:
                self.cut(one, other)

    def heal(self) -> None:
        """What was held back arrives now."""
        with self._lock:
            self._cut.clear()
            held, self._held = self._held, []
        for pipe, data in held:
            self._deliver(pipe, data)

    def close(self) -> None:
        self._ended = True
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _listen(self, source: int, target: int, target_port: int) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, 0))
        listener.listen(64)
        self._ports[source, target] = listener.getsockname()[1]
        self._selector.register(listener, selectors.EVENT_READ, (source, target, target_port))

    def _run(self) -> None:
        while not self._ended:
            for key, _ in self._selector.select(0.05):
                if isinstance(key.data, _Pipe):
                    self._move(key.data)
                else:
                    self._accept(key.fileobj, *key.data)  # type: ignore[arg-type]

    def _accept(self, listener: socket.socket, source: int, target: int, port: int) -> None:
        near, _ = listener.accept()
        try:
            far = socket.create_connection((HOST, port), timeout=1)
        except OSError:
            near.close()
            return
        for one in (near, far):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        there, back = _Pipe(near, far, (source, target)), _Pipe(far, near, (target, source))
        self._selector.register(near, selectors.EVENT_READ, there)
        self._selector.register(far, selectors.EVENT_READ, back)

    def _move(self, pipe: _Pipe) -> None:
        try:
            data = pipe.source.recv(CHUNK)
        except OSError:
            data = b""
        with self._lock:
            if pipe.way in self._cut and data:
                self._held.append((pipe, data))
                return
        self._deliver(pipe, data)

    def _deliver(self, pipe: _Pipe, data: bytes) -> None:
        try:
            if data:
                pipe.target.sendall(data)
                return
        except OSError:
            pass
        for one in (pipe.source, pipe.target):
            if one.fileno() >= 0:
                self._selector.unregister(one)
                one.close()
