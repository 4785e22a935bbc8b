"""What can be refused before Spark starts, which takes many seconds: each says what to do."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from chronik.cli._client import connect_error, unknown_topic
from chronik.cli._output import note

if TYPE_CHECKING:
    from chronik.pipeline.ingest_metrics import Counters

ANSWER_SECONDS_MAX = 5.0
INTERNAL = "__"
"""Topics that begin so are not listed; whoever asks for one knows it."""
_LOCAL = re.compile(r"local(\[(\d+|\*)(,\s*\d+)?\])?|yarn|k8s://.+|local-cluster\[.+\]")
_STANDALONE = "spark://"


def require_master(master: str) -> None:
    """A URL that Spark knows, and a standalone master that listens."""
    if _LOCAL.fullmatch(master):
        return
    addresses = master.removeprefix(_STANDALONE).split(",")
    if not master.startswith(_STANDALONE) or not all(re.fullmatch(r".+:\d+", a) for a in addresses):
        raise click.BadParameter(
            f"'{master}' is no Spark master: local[*], local[4], spark://HOST:7077, yarn, k8s://URL",
            param_hint="--master",
        )
    problems = [connect_error(one) for one in addresses]
    if all(problems):
        raise click.ClickException(
            f"no Spark master is reachable at {master} ({problems[0]}). Its own page "
            "(http://HOST:8080) shows its URL; local[*] needs none"
        )


def require_topics(bootstrap: str, topics: Iterable[str]) -> None:
    """Every topic is there; asked of the cluster with little patience."""
    from chronik.pipeline.client import Cluster, RetriableError

    with Cluster(bootstrap, ANSWER_SECONDS_MAX, ANSWER_SECONDS_MAX) as cluster:
        try:
            known = cluster.topics()
        except RetriableError as error:
            raise click.ClickException(
                f"{bootstrap} takes connections, but no broker answers there ({error}): it must "
                "be a Kafka listener without TLS, and a cluster that has a controller"
            ) from error
    for topic in topics:
        if topic not in known and not topic.startswith(INTERNAL):
            raise unknown_topic(topic, known)


def serve_metrics(counters: "Counters", port: int) -> None:
    """Prometheus' page, or why there is none."""
    try:
        counters.serve(port)
    except OSError as error:
        raise click.BadParameter(
            f"port {port} cannot be used ({(error.strerror or str(error)).lower()}); "
            "0 takes a free one",
            param_hint="--metrics-port",
        ) from error
    note(f"Metrics are at http://127.0.0.1:{counters.port}/metrics")
