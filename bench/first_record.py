"""From a cluster's start to its first acknowledged record: `bench/first_record.py [--rounds 3]`.

Kafka and Chronik in turn, each on empty data. When all brokers are there a topic with a replica on
each is created, then a record with acks=all is sent until it is acknowledged. One line per start,
then the medians. The time runs from the first process's birth.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import bench
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from contestants import Chronik, Contestant, Kafka, MissingError
from processes import say

SECONDS_MAX = 60
TOPIC = "first"
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50}


def brokers(admin: AdminClient) -> int:
    """How many the cluster says it has; 0 where nobody answers."""
    try:
        return len(admin.list_topics(timeout=0.05).brokers)
    except KafkaException:
        return 0


def first_record(bootstrap: str, replicas: int, stop: float) -> float:
    """When a record was acknowledged; the clients need up to a second more until they are gone."""
    admin = AdminClient(bench.base(bootstrap, **QUICK))
    wanted = NewTopic(TOPIC, num_partitions=1, replication_factor=replicas)
    # Short questions: within a long one this librdkafka does not notice that a server has come up.
    while bench.now() < stop and brokers(admin) < replicas:
        time.sleep(0.02)
    while bench.now() < stop:
        try:
            admin.create_topics([wanted], request_timeout=5)[TOPIC].result(10)
            break
        except KafkaException as error:
            if error.args[0].name() == "TOPIC_ALREADY_EXISTS":
                break
    producer = Producer(bench.base(bootstrap, acks="all", **QUICK, **{"linger.ms": 0}))
    acked: list[float] = []

    def report(error: object, _: object) -> None:
        if error is None:
            acked.append(bench.now())

    while not acked and bench.now() < stop:
        bench.know(producer, TOPIC)
        producer.produce(TOPIC, b"hello", on_delivery=report)
        producer.flush(5)
    if not acked:
        raise TimeoutError(f"{bootstrap}: no record was acknowledged within {SECONDS_MAX} s")
    return acked[0]


def seconds(contestant: Contestant) -> float:
    """How long one start took."""
    with contestant.running() as (bootstrap, pids):
        born = bench.now() - bench.Server(pids).age()
        return first_record(bootstrap, contestant.nodes, born + SECONDS_MAX) - born


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=3)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if asked.rounds < 1:
        parser.error("--rounds: at least 1")
    nodes = asked.nodes
    sides = [Kafka(nodes), Chronik("os", nodes=nodes), Chronik("fsync", nodes=nodes)]
    found: dict[str, list[float]] = {side.name: [] for side in sides}
    try:
        for side in sides:
            side.prepare()
    except MissingError as error:
        say(str(error))
        return 1
    for _ in range(asked.rounds):
        for side in sides:
            found[side.name].append(seconds(side))
            say(f"{side.name:14} {found[side.name][-1]:6.2f} s")
    kafka = statistics.median(found["kafka"])
    for name, times in found.items():
        median = statistics.median(times)
        say(f"{name:14} {median:6.2f} s, {median / kafka:.2f} of Kafka's (median of {len(times)})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
