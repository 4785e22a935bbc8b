"""`chronik produce`: lines to records, each acknowledged before the command calls it a success."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from chronik.cli._client import Cluster, client_command
from chronik.cli._options import client_options, pairs, raw, topic_name, unescaped
from chronik.cli._output import note

if TYPE_CHECKING:
    from chronik.cli._producing import Lines, Sending

PROGRESS_BYTES_MIN = 4 * 1024 * 1024


@click.command("produce")
@click.argument("topic", callback=topic_name)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Read lines from here instead of stdin.",
)
@click.option("--key", "-k", help="The key of every record.")
@click.option(
    "--key-separator", "-K", metavar="TEXT", help=r"A line is KEY, this, VALUE; e.g. : or \t."
)
@click.option(
    "--header", "headers", multiple=True, metavar="KEY=VALUE", help="On every record. Repeatable."
)
@click.option("--partition", "-p", type=click.IntRange(0), help="Default: by key, else spread.")
@click.option(
    "--compression",
    "-z",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option(
    "--idempotent/--no-idempotent",
    default=None,
    help="A retry never writes twice. Default: yes, if acks=all.",
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Records per second.")
@click.option("--null-value", metavar="TEXT", help="A value that is this text is a null.")
@client_options
@client_command
def command(
    topic: str,
    path: Path | None,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    compression: str,
    acks: str,
    idempotent: bool | None,
    rate: float | None,
    null_value: str | None,
    bootstrap: str,
    extra: tuple[str, ...],
) -> None:
    """Write each line of stdin as one record.

    \b
    echo hello | chronik produce greetings
    chronik produce users --key-separator : --file users.txt --compression lz4

    Ends with 0 if the broker acknowledged every record, else with 1.
    """
    from chronik.cli._producing import Lines, Sending, new_producer, require_topic

    if key is not None and key_separator is not None:
        raise click.UsageError("choose: --key is for every record, --key-separator per line")
    if idempotent and acks != "all":
        raise click.UsageError("--idempotent needs --acks all")
    lines = Lines(
        key=None if key is None else raw(key),
        separator=_separator(key_separator),
        null=None if null_value is None else raw(null_value),
    )
    on_every = [_header(text) for text in headers]
    cluster = Cluster(bootstrap, extra)
    require_topic(cluster, topic, partition)
    exactly_once = acks == "all" if idempotent is None else idempotent
    producer = new_producer(cluster, acks, compression, idempotent=exactly_once)
    sending = Sending(producer, topic, partition, on_every, rate)
    _send(sending, lines, path)


def _header(text: str) -> tuple[str, bytes]:
    """A name may come twice, as in Kafka; librdkafka crashes on one that is no UTF-8."""
    ((name, value),) = pairs([text], "--header").items()
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise click.BadParameter(
            f"the name {name!r} is no UTF-8", param_hint="'--header'"
        ) from error
    return name, raw(value)


def _separator(text: str | None) -> bytes | None:
    separator = None if text is None else unescaped(text, "--key-separator")
    if separator == b"":
        raise click.BadParameter("it is empty", param_hint="'--key-separator'")
    return separator


def _send(sending: "Sending", lines: "Lines", path: Path | None) -> None:
    """Whatever ends the reading, what was read is delivered and counted."""
    try:
        if path is None or str(path) == "-":
            if sys.stdin.isatty():
                note("One line is one record; Ctrl-D ends.")
            sending.send(lines.read(sys.stdin.buffer))
        else:
            with path.open("rb") as file:
                _send_file(sending, lines, file, path.stat().st_size)
    finally:
        sending.flush()
        note(sending.summary())
    sending.require_success()


def _send_file(sending: "Sending", lines: "Lines", file: BinaryIO, size: int) -> None:
    if size < PROGRESS_BYTES_MIN or not sys.stderr.isatty():
        sending.send(lines.read(file))
        return
    with click.progressbar(
        length=size, label="producing", file=sys.stderr, update_min_steps=size // 100
    ) as bar:
        sending.send(lines.read(file, bar.update))
