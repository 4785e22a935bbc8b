"""`chronik node`: one node of a cluster over many hosts, from a file, the environment and flags."""

import dataclasses
import os
import sys

import click

from chronik.cli._config_file import read_environment, read_file
from chronik.model.node_config import CONFIGS, Given, NodeConfigError, settle
from chronik.model.settings import NodeSettings

EXIT_NOT_CONFIGURED = 78
"""EX_CONFIG of sysexits.h: a service manager need not try again."""


@click.command("node")
@click.option("--config", metavar="FILE", help="A TOML file; see docs/reference/configuration.md.")
@click.option("--node-id", metavar="ID")
@click.option("--data", metavar="DIR", help="Where the data is kept.")
@click.option("--rack", metavar="NAME")
@click.option("--listen", metavar="HOST:PORT", help="Address for clients.")
@click.option("--advertise", metavar="HOST[:PORT]", help="What clients are told to connect to.")
@click.option("--peer-listen", metavar="HOST:PORT", help="Address for the other nodes.")
@click.option("--peers", metavar="ID@HOST:PORT,...", help="All voters, this node too.")
@click.option("--join", is_flag=True, help="New to a running cluster, whose nodes are the peers.")
@click.option("--durability", metavar="fsync|os")
@click.option("--trace", metavar="off|memory|files")
@click.option("--http", metavar="HOST:PORT", help="Status page, /health and /metrics.")
@click.option("--set", "configs", multiple=True, metavar="KEY=VALUE", help="A broker config.")
@click.option("--check", is_flag=True, help="Say whether the configuration is right, and end.")
@click.option("--verbose", "-v", is_flag=True, help="Log what is usually kept quiet.")
def command(config: str | None, check: bool, verbose: bool, **flags: object) -> None:
    """Run one node of a cluster in the foreground.

    Values come from the file, then CHRONIK_... variables, then flags; the last one counts.
    """
    try:
        given = read_file(config) if config is not None else []
        settings = settle([*given, *read_environment(os.environ), *_flags(flags)])
    except NodeConfigError as error:
        click.echo("Error: the node cannot start with this configuration", err=True)
        for problem in error.problems:
            click.echo(f"  {problem}", err=True)
        sys.exit(EXIT_NOT_CONFIGURED)
    if check:
        _show(settings)
        return
    from chronik.cli.up import leave, run_node

    leave(run_node(settings, verbose=verbose))


def _flags(flags: dict[str, object]) -> list[Given]:
    """What was said on the command line, by the keys of the file."""
    found = []
    for name, key in _PLAIN.items():
        if (value := flags[name]) is not None:
            found.append(Given(key, value, "--" + name.replace("_", "-")))
    for name, section in _ADDRESSES.items():
        if (value := flags[name]) is not None:
            found += _address(section, str(value), "--" + name.replace("_", "-"))
    if flags["join"]:
        found.append(Given("cluster.join", True, "--join"))
    pairs = flags["configs"]
    assert isinstance(pairs, tuple)
    for item in pairs:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise NodeConfigError([f"--set: {item!r} is no KEY=VALUE, e.g. num.partitions=3"])
        found.append(Given(CONFIGS + key.strip(), value.strip(), f"--set {key.strip()}"))
    return found


_PLAIN = {
    "node_id": "node.id",
    "data": "node.data",
    "rack": "node.rack",
    "peers": "cluster.peers",
    "durability": "node.durability",
    "trace": "node.trace",
}
_ADDRESSES = {
    "listen": "listen",
    "advertise": "advertised",
    "peer_listen": "peer",
    "http": "http",
}


def _address(section: str, value: str, where: str) -> list[Given]:
    host, colon, port = value.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        host, port = value, ""
    found = [Given(f"{section}.host", host.strip("[]"), where)] if host else []
    return [*found, Given(f"{section}.port", port, where)] if port else found


def _show(settings: NodeSettings) -> None:
    from chronik.cli._output import print_table

    rows = [
        (field.name, _text(getattr(settings, field.name))) for field in dataclasses.fields(settings)
    ]
    print_table(["setting", "value"], rows)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(
            f"{one[0]}={one[1]}" if len(one) == 2 else "{}@{}:{}".format(*one) for one in value
        )
    return "-" if value is None else str(value)
