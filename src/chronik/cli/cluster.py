"""`chronik cluster`: what an operator does to a running cluster; each safe to run again."""

import sys
from dataclasses import asdict
from functools import wraps
from typing import Any

import click

from chronik.cli._options import bootstrap_option
from chronik.cli._output import count_text, json_option, note, print_json, print_table, quiet_end
from chronik.cli._wire import NoAnswerError

PARALLEL = 10
SHOWN_MAX = 5


@click.group("cluster")
def command() -> None:
    """See, balance, grow and shrink a cluster."""


def operator_command(function: Any) -> Any:
    """A command that talks to nodes: it never ends with a traceback."""

    @quiet_end
    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except NoAnswerError as error:
            raise click.ClickException(
                f"{error}. Say where the cluster is with --bootstrap HOST:PORT,... or "
                "CHRONIK_BOOTSTRAP"
            ) from error

    return bootstrap_option(wrapped)


parallel_option = click.option(
    "--parallel",
    default=PARALLEL,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Partitions that move at a time.",
)


@command.command("status")
@json_option
@operator_command
def status(as_json: bool, bootstrap: str) -> None:
    """Show nodes, the metadata log and partitions; exit code 1 where something is wrong."""
    from chronik.cli._cluster_state import look, problems
    from chronik.cli._cluster_view import as_dict, show

    state = look(bootstrap, offsets=True)
    found = problems(state)
    if as_json:
        print_json({**as_dict(state), "problems": [asdict(one) for one in found]})
    else:
        show(state, found)
    if found:
        sys.exit(1)


@command.command("rebalance")
@click.option("--replicas", is_flag=True, help="Move replicas too, to even counts on all nodes.")
@click.option("--dry-run", is_flag=True, help="Only say what would move.")
@parallel_option
@operator_command
def rebalance(replicas: bool, dry_run: bool, parallel: int, bootstrap: str) -> None:
    """Let the preferred replicas lead again; interrupted, it goes on when it is run again."""
    from chronik.cli._balance import evened
    from chronik.cli._cluster_state import look
    from chronik.cli._moving import elect_preferred, misled, move

    state = look(bootstrap)
    racks = {node: state.brokers[node].rack for node in state.live}
    plan = evened(state.targets, racks) if replicas else {}
    rows = [
        (f"{topic}-{index}", _ids(state.targets[topic, index]), _ids(to))
        for (topic, index), to in sorted(plan.items())
    ]
    if dry_run:
        if rows:
            print_table(["partition", "from", "to"], rows)
        note(f"{count_text(len(rows), 'partition')} would move, {len(misled(state))} change leader")
        return
    if plan or (state.moving and replicas):
        move(bootstrap, plan, parallel)
    before = len(misled(look(bootstrap)))
    failures = elect_preferred(bootstrap)
    after = len(misled(look(bootstrap)))
    note(f"{count_text(before - after, 'partition')} went back to the preferred leader")
    if failures:
        shown = "\n  ".join(failures[:SHOWN_MAX])
        raise click.ClickException(f"{len(failures)} keep another leader:\n  {shown}")


def _ids(replicas: tuple[int, ...]) -> str:
    return ",".join(map(str, replicas))


@command.command("elect-unclean")
@click.argument("topic")
@click.option("--partition", "-p", "partitions", multiple=True, type=click.IntRange(0))
@click.option("--yes", is_flag=True, help="Do not ask.")
@operator_command
def elect_unclean(topic: str, partitions: tuple[int, ...], yes: bool, bootstrap: str) -> None:
    """Let a live replica lead partitions of TOPIC that have no leader; without -p all of them.

    Messages that were acknowledged and that this replica lacks are lost for good. It is the way
    out where the disks of every replica that was in sync are lost.
    """
    from chronik.cli._cluster_state import look
    from chronik.cli._moving import elect_unclean as elect

    views = look(bootstrap).partitions
    wanted = [
        (name, index)
        for (name, index), view in sorted(views.items())
        if name == topic and view.leader < 0 and (not partitions or index in partitions)
    ]
    if not wanted:
        raise click.ClickException(f"no such partition of {topic} is without a leader")
    if not yes:
        what = count_text(len(wanted), "partition")
        click.confirm(f"{what} of {topic} may lose acknowledged messages. Go on?", abort=True)
    failures = elect(bootstrap, wanted)
    note(f"{count_text(len(wanted) - len(failures), 'partition')} got a leader")
    if failures:
        raise click.ClickException("\n  ".join(failures[:SHOWN_MAX]))


@command.command("transfer-leader")
@click.argument("node", type=click.IntRange(0))
@operator_command
def transfer_leader(node: int, bootstrap: str) -> None:
    """Let NODE lead the metadata log (be the controller)."""
    from chronik.cli._members import transfer

    note(transfer(bootstrap, node))


@command.command("add-node")
@click.argument("node", type=click.IntRange(0))
@click.option("--timeout", default=60, show_default=True, help="Seconds to wait for it.")
@operator_command
def add_node(node: int, timeout: int, bootstrap: str) -> None:
    """Give NODE a vote; start it first with `chronik node --join` and the cluster's peers.

    It waits until the node has caught up. Then `rebalance --replicas` gives it its share.
    """
    from chronik.cli._members import add

    note(add(bootstrap, node, timeout))


@command.command("remove-node")
@click.argument("node", type=click.IntRange(0))
@click.option("--shrink", is_flag=True, help="Partitions may lose a replica if there is no room.")
@click.option("--timeout", default=600, show_default=True, help="Seconds to wait for its stop.")
@parallel_option
@operator_command
def remove_node(node: int, shrink: bool, timeout: int, parallel: int, bootstrap: str) -> None:
    """Take NODE out: its replicas move, then its vote goes, then, when it is stopped, its name.

    Interrupted, it goes on when it is run again.
    """
    from chronik.cli._members import remove

    note(remove(bootstrap, node, shrink=shrink, parallel=parallel, timeout_s=timeout))
