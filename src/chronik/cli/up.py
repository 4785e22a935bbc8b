"""`chronik up`: a node on this machine, in the foreground, until Ctrl-C.

What only a node needs is imported where it runs: the parent of a cluster starts its nodes sooner.
"""

import contextlib
import gc
import os
import signal
import sys
from typing import NoReturn

import click

from chronik.model.configs import ConfigError
from chronik.model.settings import Durability, NodeSettings, TraceMode

SWITCH_INTERVAL_S = 0.0005
"""How long a busy event loop may keep a disk thread from going on (Python's own value is 5 ms)."""
OF_ONE_NODE = ("node_id", "peers", "peer_port", "advertise")
"""Options that say which node of which cluster this is: `--nodes` decides it for all of them."""
PORT_LAST = 65535


@click.command("up")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=9092,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="0: any free one.",
)
@click.option("--data", default="./chronik-data", show_default=True, help="Where the data is kept.")
@click.option(
    "--durability",
    type=click.Choice(["fsync", "os"]),
    default="fsync",
    show_default=True,
    help="fsync: acknowledged means on the disk. os: in the page cache, as Kafka's default.",
)
@click.option(
    "--nodes",
    default=1,
    show_default=True,
    type=click.IntRange(1, 9),
    help="A cluster of N processes on this machine; node i listens on PORT + i - 1.",
)
@click.option("--peers", metavar="ID@HOST:PORT,...", help="All voters of a cluster, this node too.")
@click.option("--peer-port", type=click.IntRange(0, 65535), default=0, help="For the other nodes.")
@click.option("--node-id", default=1, show_default=True, type=click.IntRange(0))
@click.option("--advertise", metavar="HOST[:PORT]", help="What clients are told to connect to.")
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    help="Status page, /health and /metrics; with --nodes that of node i is on HTTP_PORT + i - 1.",
)
@click.option(
    "--trace",
    type=click.Choice(["off", "memory", "files"]),
    default="off",
    show_default=True,
    help="Evidence of every batch's way; files go to DATA/traces.",
)
@click.option(
    "--set",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A broker config by Kafka's name, e.g. --set num.partitions=3. Repeatable.",
)
@click.option("--verbose", "-v", is_flag=True, help="Log what is usually kept quiet.")
@click.option("--ready-fd", type=int, hidden=True, help="Written to once the node serves.")
@click.pass_context
def command(
    context: click.Context,
    host: str,
    port: int,
    data: str,
    durability: Durability,
    nodes: int,
    peers: str | None,
    peer_port: int,
    node_id: int,
    advertise: str | None,
    http_port: int | None,
    trace: TraceMode,
    configs: tuple[str, ...],
    verbose: bool,
    ready_fd: int | None,
) -> None:
    """Start a node, or a cluster of them, in the foreground; Ctrl-C stops it."""
    static = _configs(configs)
    if not data:
        raise click.UsageError("--data is empty: name the directory for the data")
    note_other_data(nodes, data)
    if nodes > 1:
        _refuse_options_of_one_node(context)
        _refuse_addresses(nodes, host, port, http_port)
        options = ["--durability", durability, "--trace", trace]
        options += [f"--set={key}={value}" for key, value in static]
        options += ["-v"] if verbose else []
        sys.exit(_cluster(nodes, host, port, http_port, data, options))
    advertised_host, advertised_port = _advertised(host, advertise)
    settings = NodeSettings(
        data_dir=data,
        node_id=node_id,
        host=host,
        port=port,
        advertised_host=advertised_host,
        advertised_port=advertised_port,
        durability=durability,
        trace=trace,
        http_port=http_port,
        peer_port=peer_port,
        peers=_peers(peers, node_id),
        configs=static,
    )
    leave(run_node(settings, verbose=verbose, ready_fd=ready_fd))


def note_other_data(nodes: int, data: str) -> None:
    """A node and a cluster may share a directory, and do not see each other's topics there."""
    of_a_node = os.path.exists(os.path.join(data, "meta.properties"))
    of_a_cluster = os.path.exists(os.path.join(data, "node-1", "meta.properties"))
    if nodes > 1 and of_a_node and not of_a_cluster:
        what = "a single node, which 'chronik up' without --nodes shows"
    elif nodes == 1 and of_a_cluster and not of_a_node:
        what = "a cluster, which 'chronik up --nodes N' shows"
    else:
        return
    click.echo(f"Note: {data} holds the data of {what}; this starts anew beside it.", err=True)


def _advertised(host: str, advertise: str | None) -> tuple[str | None, int | None]:
    if advertise is None:
        if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - it is refused
            raise click.UsageError(
                f"--host {host} is no address that a client can connect to: "
                "add --advertise HOST[:PORT] with the one that it can"
            )
        return None, None
    name, _, port = advertise.rpartition(":") if _has_port(advertise) else (advertise, "", "")
    name = name.strip("[]")
    if port and not (port.isdigit() and 0 < int(port) < 65536):
        raise click.UsageError(f"--advertise {advertise}: {port!r} is no port")
    if name in {"", "0.0.0.0", "::"}:  # noqa: S104 - it is refused
        raise click.UsageError(f"--advertise {advertise}: name the host that clients can reach")
    return name, int(port) if port else None


def _peers(given: str | None, node_id: int) -> tuple[tuple[int, str, int], ...]:
    from chronik.model.node_config import read_peer

    try:
        found = tuple(read_peer(item) for item in (given or "").split(",") if item.strip())
    except ValueError as error:
        raise click.UsageError(f"--peers: {error}") from error
    ids = [one[0] for one in found]
    if found and node_id not in ids:
        raise click.UsageError(f"--peers: node {node_id}, this one, is not among {sorted(ids)}")
    if len(set(ids)) < len(ids):
        raise click.UsageError(f"--peers: a node appears twice among {sorted(ids)}: ids are unique")
    return found


def _refuse_options_of_one_node(context: click.Context) -> None:
    from click.core import ParameterSource

    for name in OF_ONE_NODE:
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(
                f"--{name.replace('_', '-')} is for one node, and --nodes starts several, which it "
                "numbers and connects itself: to choose that for each, start each with "
                "'chronik node --config FILE'"
            )


def _refuse_addresses(nodes: int, host: str, port: int, http_port: int | None) -> None:
    """All ports are known before a node starts: the nodes name each other's to each other."""
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - it is refused
        raise click.UsageError(
            f"--host {host} is no address that a client can connect to, and --nodes tells clients "
            "the one that it listens on: choose an address of this machine, or start each node "
            "with 'chronik node --config FILE', which may advertise another"
        )
    if not port:
        raise click.UsageError("--nodes needs a fixed --port: the nodes take the ports after it")
    if port + 2 * nodes - 1 > PORT_LAST:
        raise click.UsageError(
            f"--port {port}: {nodes} nodes take {2 * nodes} ports from there on, and the last "
            f"port there is is {PORT_LAST}: choose one up to {PORT_LAST + 1 - 2 * nodes}"
        )
    if http_port is not None:
        _refuse_http_port(nodes, port, http_port)


def _refuse_http_port(nodes: int, port: int, http_port: int) -> None:
    after = port + 2 * nodes
    first, last = after, PORT_LAST + 1 - nodes
    if first > last:
        first, last = 1, port - nodes
    choose = f"choose one from {first} to {last}"
    if not http_port:
        raise click.UsageError(
            "--nodes needs a fixed --http-port: the status pages take the ports from there on, "
            f"one for each node; {choose}"
        )
    if http_port + nodes - 1 > PORT_LAST or port - nodes < http_port < after:
        raise click.UsageError(
            f"--http-port {http_port}: the status pages of {nodes} nodes take {nodes} ports from "
            f"there on, up to {PORT_LAST} and beside {port} to {after - 1}, which the nodes take "
            f"themselves: {choose}"
        )


def _cluster(
    nodes: int, host: str, port: int, http_port: int | None, data: str, options: list[str]
) -> int:
    from chronik.cli._supervisor import Supervisor, plan

    defaults = [f"--set=default.replication.factor={min(3, nodes)}"]
    if not any(option.startswith("--set=min.insync.replicas") for option in options):
        defaults.append(f"--set=min.insync.replicas={min(2, nodes)}")
    return Supervisor(plan(nodes, port, data, http_port), host, [*defaults, *options]).run()


def _has_port(address: str) -> bool:
    head, colon, _ = address.rpartition(":")
    return bool(colon) and (":" not in head or head.endswith("]"))


def _configs(given: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    if not given:
        return ()
    from chronik.cli._client import close_names, did_you_mean
    from chronik.model.broker_configs import BROKER_KEYS, validate_static
    from chronik.model.node_keys import OWN_KEYS

    pairs = []
    for item in given:
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key:
            raise click.UsageError(f"--set {item}: write KEY=VALUE, e.g. --set num.partitions=3")
        if key not in BROKER_KEYS and (close := close_names(key, BROKER_KEYS)):
            raise click.UsageError(f"--set {item}: unknown broker config, {did_you_mean(close)}")
        if key in OWN_KEYS and key != "broker.rack":  # which `up` has no option for
            raise click.UsageError(
                f"--set {key}: that has an option of its own, see 'chronik up --help'"
            )
        pairs.append((key, value))
    try:
        validate_static(dict(pairs))
    except ConfigError as error:
        raise click.UsageError(f"--set: {error}") from error
    return tuple(pairs)


def run_node(settings: NodeSettings, *, verbose: bool, ready_fd: int | None = None) -> int:
    """Runs a node until a signal; returns the exit code."""
    import asyncio
    import logging

    import uvloop

    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, ready_fd))
    except asyncio.CancelledError:
        return 0  # stopped before it served
    except Exception as error:  # noqa: BLE001 - the last line of defence
        _complain(_innermost(error), settings)
        return 1
    return 0


def leave(code: int) -> NoReturn:
    """Ends the process of a node: all of it is closed, and the system takes its memory at once.

    Python would first take apart what ten thousand partitions consist of, for half a second.
    """
    if code:
        sys.exit(code)
    with contextlib.suppress(OSError, ValueError):  # whoever reads it may be gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _raise_file_limit() -> None:
    """Connections and segments are open files: as many as the system allows."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _serve(settings: NodeSettings, ready_fd: int | None) -> None:
    import asyncio

    from chronik.node.node import running

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    starting = asyncio.current_task()
    assert starting is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, starting.cancel)  # it may wait for a majority for long
    async with running(settings) as node:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        gc.collect()
        gc.freeze()  # what is built by now lives as long as the node: no need to look at it again
        if ready_fd is not None:
            _say_ready(ready_fd)
        click.echo(f"Chronik node {settings.node_id} listens on {node.bootstrap}", err=True)
        click.echo(f"  data in {settings.data_dir}, durability={settings.durability}", err=True)
        if node.http_port is not None:
            where = settings.http_host or settings.host
            click.echo(f"  status page on http://{where}:{node.http_port}/", err=True)
        click.echo(
            f"Try it:  echo hello | chronik produce greetings --bootstrap {node.bootstrap}\n"
            f"         chronik consume greetings --from earliest --bootstrap {node.bootstrap}",
            err=True,
        )
        await stop.wait()
        click.echo("Stopping ...", err=True)


def _say_ready(pipe: int) -> None:
    """Whoever asked for it may be gone by now."""
    with contextlib.suppress(OSError), open(pipe, "wb", buffering=0) as ready:
        ready.write(b"\n")


def _complain(error: BaseException, settings: NodeSettings) -> None:
    import logging

    from chronik.node.listening import ListenError
    from chronik.storage.data_dir import DataDirError
    from chronik.storage.raft_store import RaftStoreDamaged

    if isinstance(error, (DataDirError, ListenError, RaftStoreDamaged)):
        click.echo(f"Error: {error}", err=True)
    elif isinstance(error, OSError) and error.filename is not None:
        click.echo(
            f"Error: {error.filename}: {error.strerror}; check the disk, and that all files in "
            f"{settings.data_dir} are this user's",
            err=True,
        )
    else:
        logging.getLogger(__name__).error("the node failed", exc_info=error)
