"""`chronik config`: what is set for a topic or a broker, by whom, and what it means."""

from dataclasses import asdict

import click

from chronik.cli._client import Cluster, client_command
from chronik.cli._configs import ResourceName, alter_configs, describe_configs, documentation
from chronik.cli._options import client_options, pairs, topic_name
from chronik.cli._output import json_option, note, print_json, print_table

topic_option = click.option("--topic", "-t", callback=topic_name, help="Of this topic.")
broker_option = click.option("--broker", type=click.IntRange(0), help="Of the broker of this id.")


@click.group("config")
def command() -> None:
    """Describe, set and delete configs of a topic or a broker."""


@command.command("describe")
@topic_option
@broker_option
@click.option("--changed", is_flag=True, help="Only those that somebody set.")
@click.option("--docs", is_flag=True, help="Also what each one means.")
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@json_option
@client_options
@client_command
def describe(
    topic: str | None,
    broker: int | None,
    changed: bool,
    docs: bool,
    keys: tuple[str, ...],
    as_json: bool,
    bootstrap: str,
    extra: tuple[str, ...],
) -> None:
    """Effective values, and where each comes from; all, or those of the KEYs given."""
    name = _resource(topic, broker)
    views = describe_configs(_cluster(bootstrap, extra, broker), [name])[name]
    if missing := [key for key in keys if key not in {view.name for view in views}]:
        raise click.ClickException(
            f"{name[0]} '{name[1]}' has no config {', '.join(missing)}: "
            "leave the keys out to see all"
        )
    chosen = [
        view for view in views if (not keys or view.name in keys) and (view.changed or not changed)
    ]
    meanings = {view.name: documentation(name[0], view.name) for view in chosen} if docs else {}
    if as_json:
        rows = [asdict(view) for view in chosen]
        print_json([{**row, "doc": meanings[row["name"]]} if docs else row for row in rows])
    elif not chosen:
        note(f"Nothing is set for {name[0]} '{name[1]}': all values are the defaults.")
    else:
        columns = ("config", "value", "source", "changes")
        print_table(
            (*columns, "meaning") if docs else columns,
            [
                (
                    view.name,
                    "(hidden)" if view.sensitive else view.value,
                    view.source,
                    "at start" if view.read_only else "live",
                    *((meanings[view.name],) if docs else ()),
                )
                for view in chosen
            ],
        )


@command.command("set")
@topic_option
@broker_option
@click.argument("values", metavar="KEY=VALUE...", nargs=-1, required=True)
@client_options
@client_command
def set_(
    topic: str | None,
    broker: int | None,
    values: tuple[str, ...],
    bootstrap: str,
    extra: tuple[str, ...],
) -> None:
    """Set configs; the others stay as they are.

    \b
    chronik config set --topic orders retention.ms=86400000
    """
    name, chosen = _resource(topic, broker), pairs(values, "KEY=VALUE")
    alter_configs(_cluster(bootstrap, extra, broker), name, chosen, ())
    note(f"Set for {name[0]} '{name[1]}': {', '.join(chosen)}")


@command.command("delete")
@topic_option
@broker_option
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@client_options
@client_command
def delete(
    topic: str | None,
    broker: int | None,
    keys: tuple[str, ...],
    bootstrap: str,
    extra: tuple[str, ...],
) -> None:
    """Delete configs, which puts them back to the default."""
    name = _resource(topic, broker)
    alter_configs(_cluster(bootstrap, extra, broker), name, {}, keys)
    note(f"Deleted for {name[0]} '{name[1]}': {', '.join(keys)}")


def _cluster(bootstrap: str, extra: tuple[str, ...], broker: int | None) -> Cluster:
    """The cluster, in which the broker must exist: librdkafka would wait for it to come."""
    cluster = Cluster(bootstrap, extra)
    if broker is not None and broker not in (known := cluster.metadata().brokers):
        raise click.ClickException(
            f"there is no broker {broker}: the cluster has {', '.join(map(str, sorted(known)))}"
        )
    return cluster


def _resource(topic: str | None, broker: int | None) -> ResourceName:
    if (topic is None) == (broker is None):
        raise click.UsageError("say of what: either --topic NAME or --broker ID")
    return ("topic", topic) if topic is not None else ("broker", str(broker))
