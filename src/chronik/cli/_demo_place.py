"""What `chronik demo` stands on: a folder of its own, free ports, signals that end it cleanly."""

import fcntl
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

MARK = ".chronik-demo"
"""Says that the folder is a demo's own; its lock says that one is at work there."""
PORT_FIRST, PORT_LAST = 9092, 60_000
_ENDS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def own_folder(path: Path) -> Iterator[Path]:
    """The folder, emptied; one that holds anything but an earlier demo is refused."""
    if path.exists() and not _is_ours(path):
        raise click.UsageError(
            f"'{path}' exists and is not the folder of an earlier demo, which would be replaced: "
            "choose another with --out"
        )
    path.mkdir(parents=True, exist_ok=True)
    with open(path / MARK, "a") as mark:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise click.UsageError(
                f"another demo is at work in '{path}': choose another folder with --out"
            ) from error
        for one in path.iterdir():
            if one.name != MARK:
                shutil.rmtree(one) if one.is_dir() else one.unlink()
        yield path


def _is_ours(path: Path) -> bool:
    return path.is_dir() and ((path / MARK).exists() or not any(path.iterdir()))


@contextmanager
def choosing_ports() -> Iterator[None]:
    """One demo of this user at a time: what is free for one is not until it listens there."""
    with open(Path(tempfile.gettempdir()) / f"chronik-demo-ports-{os.getuid()}", "a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


def free_ports(count: int, first: int = PORT_FIRST) -> int:
    """The first of `count` consecutive ports that nobody listens on."""
    for port in range(first, PORT_LAST, count):
        if all(_is_free(port + i) for i in range(count)):
            return port
    raise click.ClickException(f"no {count} consecutive free ports on 127.0.0.1")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind as Ctrl-C does, so that nothing stays behind."""
    before = {number: signal.signal(number, _unwind) for number in _ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _unwind(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


@contextmanager
def not_disturbed() -> Iterator[None]:
    """A second Ctrl-C does not interrupt the stopping of what the first one ended."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, *_ENDS)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def shown(path: Path) -> str:
    """A path as a person would type it."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
