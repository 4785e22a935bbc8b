"""`chronik consume`: records of a topic, from a position to another, without a consumer group."""

import sys
from typing import TYPE_CHECKING

import click

from chronik.cli._client import Cluster, client_command
from chronik.cli._options import client_options, topic_name
from chronik.cli._output import count_text, json_option, note

if TYPE_CHECKING:
    from chronik.cli._consuming import Consuming
    from chronik.cli._formatting import Formatter
    from chronik.cli._offsets import Position


@click.command("consume")
@click.argument("topic", callback=topic_name)
@click.option(
    "--from",
    "start",
    metavar="POSITION",
    help="Where to begin. Default: earliest; latest with --follow.",
)
@click.option(
    "--to", "end", metavar="POSITION", help="Where to end, not included. Default: latest."
)
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    help="Only this one. Repeatable.",
)
@click.option("--count", "-n", type=click.IntRange(1), help="End after so many records.")
@click.option("--follow", "-f", is_flag=True, help="Wait for more at the end, until Ctrl-C.")
@click.option(
    "--format",
    "template",
    metavar="TEMPLATE",
    help=r"%k key, %v value, %h headers, %o offset, %p partition, %t topic, %T time in ms, %%, "
    r"and \n \t \\ \xNN. Default: %v\n",
)
@click.option("--offsets", is_flag=True, help="PARTITION:OFFSET and a tab before each record.")
@json_option
@client_options
@client_command
def command(
    topic: str,
    start: str | None,
    end: str | None,
    partitions: tuple[int, ...],
    count: int | None,
    follow: bool,
    template: str | None,
    offsets: bool,
    as_json: bool,
    bootstrap: str,
    extra: tuple[str, ...],
) -> None:
    """Print the records of a topic.

    It ends at what was the end when it began, unless told to --follow. Records of one partition
    come in order; it joins no consumer group and commits nothing.

    \b
    A POSITION is
      earliest, latest
      42                  that offset, in every partition
      -10                 the last ten records of every partition
      2026-07-31T12:00    a time: yours, or with a zone (...Z, ...+02:00)
      -30s, -10m, -2h     a time ago

    \b
    chronik consume orders --from -10m
    chronik consume orders --follow --format '%T %k %v\\n'
    chronik consume orders --json --from 2026-07-31T12:00 --to 2026-07-31T13:00 | jq .value
    """
    from chronik.cli._consuming import Consuming
    from chronik.cli._formatting import formatter
    from chronik.cli._offsets import ranges, resolve

    if follow and end is not None:
        raise click.UsageError("choose: --follow has no end, --to is one")
    if as_json and (template is not None or offsets):
        raise click.UsageError("--json has its own format: leave --format and --offsets out")
    begin = _position(("latest" if follow else "earliest") if start is None else start, "--from")
    finish = _position("latest" if end is None else end, "--to")
    write = formatter(template, as_json=as_json, offsets=offsets)
    cluster = Cluster(bootstrap, extra)
    held = ranges(cluster.admin, _partitions(cluster, topic, partitions))
    _check_begin(begin, [has.end for has in held.values()])
    ends = {} if follow else resolve(cluster.admin, finish, held)
    consuming = Consuming(cluster, resolve(cluster.admin, begin, held), ends, count)
    _print(consuming, write)
    if not consuming.delivered and sys.stdout.isatty():
        note(f"No records in that range of '{topic}', {count_text(len(held), 'partition')}.")


def _position(text: str, option: str) -> "Position":
    from chronik.broker.clock import SystemClock
    from chronik.cli._offsets import parse_position

    try:
        return parse_position(text, SystemClock().now_ms())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=f"'{option}'") from error


def _check_begin(begin: "Position", ends: list[int]) -> None:
    """Silence would look like a topic without records."""
    if begin.kind == "offset" and begin.number > max(ends):
        raise click.BadParameter(
            f"offset {begin.number} lies beyond the end, which is {max(ends)}"
            + (" at most" if len(ends) > 1 else ""),
            param_hint="'--from'",
        )


def _partitions(cluster: Cluster, topic: str, chosen: tuple[int, ...]) -> list[tuple[str, int]]:
    known = cluster.metadata().topics.get(topic)
    if known is None:
        raise cluster.unknown_topic(topic)
    if missing := sorted(set(chosen) - set(known.partitions)):
        raise click.BadParameter(
            f"topic '{topic}' has {count_text(len(known.partitions), 'partition')}, "
            f"none with the number {missing[0]}",
            param_hint="'--partition'",
        )
    return [(topic, number) for number in sorted(set(chosen) or known.partitions)]


def _print(consuming: "Consuming", write: "Formatter") -> None:
    output = sys.stdout.buffer
    try:
        for message in consuming.messages():
            if message is None:  # nothing more at this moment: let the reader see what there is
                output.flush()
            else:
                output.write(write(message))
        output.flush()
    finally:
        consuming.close()
