"""`chronik topic`: create, list, describe, alter and delete topics of any Kafka cluster."""

import sys
from typing import Any

import click

from chronik.cli._client import ANSWER_SECONDS_MAX, Cluster, client_command, error_text, result
from chronik.cli._client import results as results_of
from chronik.cli._options import client_options, pairs, topic_name
from chronik.cli._output import count_text, json_option, note, print_json, print_table

PARTITIONS = click.IntRange(1, 100_000)
REPLICATION = click.IntRange(1, 10_000)
"""What librdkafka takes for a topic."""


@click.group("topic")
def command() -> None:
    """Create, list, describe, alter and delete topics."""


@command.command("create")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, callback=topic_name)
@click.option("--partitions", "-p", type=PARTITIONS, help="Default: the broker's.")
@click.option("--replication", "-r", type=REPLICATION, help="Default: the broker's.")
@click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE", help="A topic config. Repeatable."
)
@click.option("--if-not-exists", is_flag=True, help="A topic that exists is no error.")
@client_options
@client_command
def create(
    topics: tuple[str, ...],
    partitions: int | None,
    replication: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
    extra: tuple[str, ...],
) -> None:
    """Make topics.

    \b
    chronik topic create orders --partitions 3 --config retention.ms=86400000
    """
    from confluent_kafka import KafkaError
    from confluent_kafka.cimpl import NewTopic

    settings = pairs(configs, "--config")
    new = [
        NewTopic(name, partitions or -1, replication or -1, config=settings)
        for name in dict.fromkeys(topics)
    ]
    cluster = Cluster(bootstrap, extra)
    answers = results_of(cluster.admin.create_topics(new, operation_timeout=ANSWER_SECONDS_MAX))
    cluster.wait_for_topics(name for name, error in answers.items() if error is None)
    exists = {
        name
        for name, answer in answers.items()
        if answer is not None and answer.code() == KafkaError.TOPIC_ALREADY_EXISTS
    }
    if if_not_exists:
        answers |= dict.fromkeys(exists)
    _report(answers, lambda name: f"{'Exists' if name in exists else 'Created'}: {name}")


def _report(answers: dict[str, Any], done: Any) -> None:
    """Says for each name what became of it; ends with 1 where one failed."""
    for name, error in answers.items():
        if error is None:
            note(done(name))
    failed = {name: error for name, error in answers.items() if error is not None}
    for name, error in failed.items():
        note(f"Error: topic '{name}': {error_text(error)}")
    if failed:
        sys.exit(1)


@command.command("list")
@click.option("--internal", is_flag=True, help="Also those that the cluster itself writes.")
@json_option
@client_options
@client_command
def list_(internal: bool, as_json: bool, bootstrap: str, extra: tuple[str, ...]) -> None:
    """Names, partitions and replication of every topic."""
    from chronik.model.names import is_internal

    found = Cluster(bootstrap, extra).metadata().topics
    topics = [found[name] for name in sorted(found) if internal or not is_internal(name)]
    rows = [
        (topic.topic, len(topic.partitions), _replication(topic.partitions)) for topic in topics
    ]
    if as_json:
        keys = ("name", "partitions", "replication")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    elif rows:
        columns = ("topic", "partitions", "replication")
        print_table(columns, rows, numbers=columns[1:])
    else:
        note("No topics yet. 'chronik topic create NAME' makes one.")


def _replication(partitions: dict[int, Any]) -> int:
    return max((len(partition.replicas) for partition in partitions.values()), default=0)


@command.command("describe")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, callback=topic_name)
@json_option
@client_options
@client_command
def describe(
    topics: tuple[str, ...], as_json: bool, bootstrap: str, extra: tuple[str, ...]
) -> None:
    """Partitions, offsets, sizes, changed configs.

    Of all topics if no name is given. A partition without a leader, or with replicas that are not
    in sync, is shown in red.
    """
    from chronik.cli._topics import describe_topics, show_topic

    cluster = Cluster(bootstrap, extra)
    views = describe_topics(cluster, topics or cluster.topic_names())
    if as_json:
        print_json([view.to_dict() for view in views])
        return
    for index, view in enumerate(views):
        if index:
            click.echo()
        show_topic(view)
    if not views:
        note("No topics yet. 'chronik topic create NAME' makes one.")


@command.command("alter")
@click.argument("topic", callback=topic_name)
@click.option("--partitions", "-p", type=PARTITIONS, help="The new number; only more.")
@click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE", help="Set a config. Repeatable."
)
@click.option(
    "--delete-config", "deleted", multiple=True, metavar="KEY", help="Back to the default."
)
@client_options
@client_command
def alter(
    topic: str,
    partitions: int | None,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
    bootstrap: str,
    extra: tuple[str, ...],
) -> None:
    """Add partitions, set or delete configs."""
    from chronik.cli._configs import alter_configs

    settings = pairs(configs, "--config")
    if partitions is None and not settings and not deleted:
        raise click.UsageError("nothing to do: give --partitions, --config or --delete-config")
    cluster = Cluster(bootstrap, extra)
    if settings or deleted:
        alter_configs(cluster, ("topic", topic), settings, deleted)
    if partitions is not None:
        _add_partitions(cluster, topic, partitions)
    note(f"Altered: {topic}")


def _add_partitions(cluster: Cluster, topic: str, partitions: int) -> None:
    from confluent_kafka.cimpl import NewPartitions

    known = cluster.metadata().topics
    if topic not in known:
        raise cluster.unknown_topic(topic)
    if partitions <= len(known[topic].partitions):
        raise click.ClickException(
            f"topic '{topic}' has {count_text(len(known[topic].partitions), 'partition')} already, "
            "and their number can only grow: give a larger one"
        )
    result(cluster.admin.create_partitions([NewPartitions(topic, partitions)]))


@command.command("delete")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, callback=topic_name)
@click.option("--yes", "-y", is_flag=True, help="Do not ask (nobody is asked without a terminal).")
@client_options
@client_command
def delete(topics: tuple[str, ...], yes: bool, bootstrap: str, extra: tuple[str, ...]) -> None:
    """Delete topics and everything in them."""
    topics = tuple(dict.fromkeys(topics))
    cluster = Cluster(bootstrap, extra)
    known = set(cluster.topic_names())
    for name in topics:
        if name not in known:
            raise cluster.unknown_topic(name)
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(topics)} and all records in it?", abort=True, err=True)
    futures = cluster.admin.delete_topics(list(topics), operation_timeout=ANSWER_SECONDS_MAX)
    _report(results_of(futures), lambda name: f"Deleted: {name}")
