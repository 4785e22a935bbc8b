"""A lab node: a node of the product, with one defect installed in this process before it starts.

python -m chronik.lab.node --defect offset-race --port 9092 --data ./lab ...
"""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence

from chronik.lab.faults import FAULTS
from chronik.lab.seams import DEFECTS
from chronik.model.settings import NodeSettings
from chronik.node.node import Node
from chronik.storage.fs import FileSystem, RealFileSystem


def main(arguments: Sequence[str] | None = None) -> None:
    given = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    if given.defect:
        DEFECTS[given.defect]()
    fs: FileSystem = RealFileSystem()
    for name in given.fault:
        fs = FAULTS[name](fs, given.data)
    asyncio.run(_serve(_settings(given), fs, until_eof=given.until_eof))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="chronik.lab.node")
    parser.add_argument("--defect", choices=sorted(DEFECTS))
    parser.add_argument("--fault", action="append", default=[], choices=sorted(FAULTS))
    parser.add_argument("--node-id", type=int, default=1)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--advertise", default="", metavar="HOST:PORT")
    parser.add_argument("--peer-port", type=int, default=0)
    parser.add_argument("--peers", default="", help="ID@PORT,...")
    parser.add_argument("--data", required=True)
    parser.add_argument("--until-eof", action="store_true", help="stop when stdin is closed")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    return parser


def _settings(given: argparse.Namespace) -> NodeSettings:
    peers = [one.split("@") for one in given.peers.split(",") if one]
    host, _, port = given.advertise.partition(":")
    return NodeSettings(
        data_dir=given.data,
        node_id=given.node_id,
        host=given.host,
        port=given.port,
        advertised_host=host or None,
        advertised_port=int(port) if port else None,
        peer_port=given.peer_port,
        peers=tuple((int(node), given.host, int(at)) for node, at in peers),
        durability="fsync",
        trace="files",
        configs=tuple((key, value) for key, _, value in (one.partition("=") for one in given.set)),
    )


async def _serve(settings: NodeSettings, fs: FileSystem, *, until_eof: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if until_eof:
        loop.add_reader(sys.stdin, stop.set)
    async with asyncio.TaskGroup() as tasks:
        node = Node(settings, tasks, fs=fs)
        try:
            await node.start()
            await stop.wait()
        finally:
            await node.stop()


if __name__ == "__main__":
    main()
