"""`chronik group`: list, describe, reset and delete consumer groups of any Kafka cluster."""

import sys
from typing import TYPE_CHECKING, Any

import click

from chronik.cli._client import ANSWER_SECONDS_MAX, Cluster, client_command, error_text, results
from chronik.cli._options import client_options, topic_name
from chronik.cli._output import json_option, note, print_json, print_table

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from chronik.cli._offsets import Position

STATES = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance")
NO_GROUPS = "No groups yet. A consumer with a group.id makes one when it subscribes or commits."


@click.group("group")
def command() -> None:
    """List, describe, reset and delete consumer groups."""


@command.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    help="Only groups in this state. Repeatable.",
)
@json_option
@client_options
@client_command
def list_(states: tuple[str, ...], as_json: bool, bootstrap: str, extra: tuple[str, ...]) -> None:
    """Names, states and types of every group."""
    from chronik.cli._groups import list_groups, text_of

    rows = [
        (one.group_id, text_of(one.state), text_of(one.type).lower())
        for one in list_groups(Cluster(bootstrap, extra))
        if not states or text_of(one.state) in states
    ]
    columns = ("group", "state", "type")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        print_table(columns, rows)
    else:
        note(f"No group is {' or '.join(states)}." if states else NO_GROUPS)


@command.command("describe")
@click.argument("groups", metavar="[GROUP]...", nargs=-1)
@json_option
@client_options
@client_command
def describe(
    groups: tuple[str, ...], as_json: bool, bootstrap: str, extra: tuple[str, ...]
) -> None:
    """Members, their partitions, committed offsets and lag; of all groups if no name is given."""
    from chronik.cli._groups import DEAD, describe_groups, group_names, show_group, unknown_group

    cluster = Cluster(bootstrap, extra)
    views = describe_groups(cluster, groups or group_names(cluster))
    for view in views:
        if view.state == DEAD:
            raise unknown_group(cluster, view.group)
    if as_json:
        print_json([view.to_dict() for view in views])
        return
    for index, view in enumerate(views):
        if index:
            click.echo()
        show_group(view)
    if not views:
        note(NO_GROUPS)


@command.command("reset-offsets")
@click.argument("group")
@click.option("--to", "target", metavar="WHERE", help="See above.")
@click.option("--shift", type=int, metavar="N", help="N records on, or back where N is negative.")
@click.option("--topic", "topics", multiple=True, callback=topic_name, help="Repeatable.")
@click.option("--all-topics", is_flag=True, help="Every topic in which the group has offsets.")
@click.option("--execute/--dry-run", default=False, help="Do it, or only show it (the default).")
@json_option
@client_options
@client_command
def reset_offsets(
    group: str,
    target: str | None,
    shift: int | None,
    topics: tuple[str, ...],
    all_topics: bool,
    execute: bool,
    as_json: bool,
    bootstrap: str,
    extra: tuple[str, ...],
) -> None:
    """Move a group that has no members to other offsets.

    WHERE is earliest, latest, an offset (42), the last records of each partition (-10), a time
    (2026-07-31T12:00, 2026-07-31T10:00Z) or a time ago (-30s, -10m, -2h, -1d).

    chronik group reset-offsets billing --topic orders --to earliest --execute
    """
    from chronik.cli._reset import execute_plan, plan, show_plan

    if (target is None) == (shift is None):
        raise click.UsageError("say where to: either --to WHERE or --shift N")
    if bool(topics) == all_topics:
        raise click.UsageError("say which topics: --topic NAME (repeatable) or --all-topics")
    position = None if target is None else _position(target)
    cluster = Cluster(bootstrap, extra)
    moves = plan(cluster, group, topics, position, shift or 0, execute=execute)
    if execute:
        execute_plan(cluster, group, moves)
    if as_json:
        print_json(
            {"group": group, "executed": execute, "partitions": [one.to_dict() for one in moves]}
        )
        return
    show_plan(moves)
    note("Done." if execute else "Nothing was changed: --execute does it.")


def _position(text: str) -> "Position":
    from chronik.broker.clock import SystemClock
    from chronik.cli._offsets import parse_position

    try:
        return parse_position(text, SystemClock().now_ms())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--to'") from error


@command.command("delete")
@click.argument("groups", metavar="GROUP...", nargs=-1, required=True)
@click.option("--yes", "-y", is_flag=True, help="Do not ask (nobody is asked without a terminal).")
@json_option
@client_options
@client_command
def delete(
    groups: tuple[str, ...], yes: bool, as_json: bool, bootstrap: str, extra: tuple[str, ...]
) -> None:
    """Delete groups without members, and the offsets that they committed."""
    cluster = Cluster(bootstrap, extra)
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(groups)} with all offsets?", abort=True, err=True)
    wanted = list(dict.fromkeys(groups))
    answers = results(
        cluster.admin.delete_consumer_groups(wanted, request_timeout=ANSWER_SECONDS_MAX)
    )
    failed = {name: _why(cluster, name, answers[name]) for name in wanted if answers[name]}
    if as_json:
        print_json(
            [{"group": n, "deleted": n not in failed, "error": failed.get(n)} for n in wanted]
        )
    for name in wanted:
        if name not in failed and not as_json:
            note(f"Deleted: {name}")
    if failed:
        raise click.ClickException("; ".join(failed.values()))


def _why(cluster: Cluster, name: str, error: "KafkaError | Any") -> str:
    from confluent_kafka import KafkaError

    from chronik.cli._groups import unknown_group

    if error.code() == KafkaError.GROUP_ID_NOT_FOUND:
        return unknown_group(cluster, name).message
    if error.code() == KafkaError.NON_EMPTY_GROUP:
        return (
            f"group '{name}' has members: stop its consumers first "
            f"('chronik group describe {name}' shows them)"
        )
    return f"group '{name}': {error_text(error)}"
