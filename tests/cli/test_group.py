"""`chronik group` against a broker in this process."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from chronik.cli import main
from chronik.embedded import embedded

pytestmark = pytest.mark.integration

TOPIC = "orders"
QUIET = {"log_level": 0}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with embedded(configs={"group.initial.rebalance.delay.ms": 0}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result()
        producer = Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
        for number in range(20):
            producer.produce(TOPIC, b"value", partition=number % 2)
        producer.flush()
        yield broker.bootstrap


@pytest.fixture
def group(bootstrap: str, request: pytest.FixtureRequest) -> str:
    """A group without members that has read 4 records of partition 0."""
    name = f"g-{request.node.name}"
    consumer = new_consumer(bootstrap, name)
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 4)], asynchronous=False)
    consumer.close()
    return name


def new_consumer(bootstrap: str, group: str) -> Consumer:
    base = {"bootstrap.servers": bootstrap, "group.id": group, "client.id": "reader"}
    return Consumer({**base, **QUIET, "enable.auto.commit": False})


def run(bootstrap: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["group", *arguments, "--bootstrap", bootstrap])


def answer(bootstrap: str, *arguments: str) -> Any:
    result = run(bootstrap, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def committed(bootstrap: str, group: str) -> dict[int, int | None]:
    (found,) = answer(bootstrap, "describe", group)
    return {each["partition"]: each["committed"] for each in found["partitions"]}


def test_groups_are_listed_with_state_and_type(bootstrap: str, group: str) -> None:
    listed = {"group": group, "state": "Empty", "type": "classic"}
    assert listed in answer(bootstrap, "list")
    assert listed in answer(bootstrap, "list", "--state", "empty")
    assert listed not in answer(bootstrap, "list", "--state", "Stable")


def test_lag_is_what_is_left_to_read(bootstrap: str, group: str) -> None:
    (found,) = answer(bootstrap, "describe", group)
    assert found["total_lag"] == 6
    assert found["partitions"][0] | {"committed": 4, "end": 10, "lag": 6} == found["partitions"][0]
    assert found["type"] == "classic"
    assert "total lag 6" in run(bootstrap, "describe", group).stdout


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["--to", "earliest"], {0: 0, 1: 0}),
        (["--to", "latest"], {0: 10, 1: 10}),
        (["--to", "7"], {0: 7, 1: 7}),
        (["--to", "-3"], {0: 7, 1: 7}),
        (["--to", "2020-01-01T00:00Z"], {0: 0, 1: 0}),
        (["--to", "99"], {0: 10, 1: 10}),
        (["--shift", "2"], {0: 6}),
        (["--shift", "-99"], {0: 0}),
    ],
)
def test_offsets_go_where_they_are_told_when_executed(
    bootstrap: str, group: str, where: list[str], expected: dict[int, int]
) -> None:
    reset = ("reset-offsets", group, "--topic", TOPIC, *where)
    planned = answer(bootstrap, *reset)
    assert {each["partition"]: each["to"] for each in planned["partitions"]} == expected
    assert committed(bootstrap, group) == {0: 4}
    assert answer(bootstrap, *reset, "--execute")["executed"]
    assert committed(bootstrap, group) == expected


def test_a_group_with_members_is_neither_reset_nor_deleted(bootstrap: str, group: str) -> None:
    consumer = new_consumer(bootstrap, group)
    consumer.subscribe([TOPIC])
    while not consumer.assignment():
        consumer.poll(0.05)
    (found,) = answer(bootstrap, "describe", group)
    (member,) = found["members"]
    assert (found["state"], member["client_id"], member["host"]) == (
        "Stable",
        "reader",
        "127.0.0.1",
    )
    assert [each["partition"] for each in member["assignment"]] == [0, 1]
    refused = run(bootstrap, "reset-offsets", group, "--all-topics", "--to", "0", "--execute")
    assert refused.exit_code == 1
    assert "reader at 127.0.0.1" in refused.stderr
    refused = run(bootstrap, "delete", group)
    assert refused.exit_code == 1
    assert "stop its consumers first" in refused.stderr
    consumer.close()
    assert answer(bootstrap, "delete", group) == [{"group": group, "deleted": True, "error": None}]
    assert run(bootstrap, "describe", group).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["describe", "nobody"], "chronik group list"),
        (["delete", "nobody"], "does not exist"),
        (["reset-offsets", "nobody", "--all-topics", "--to", "0"], "--topic"),
        (["reset-offsets", "nobody", "--topic", TOPIC, "--shift", "1"], "--to"),
        (["reset-offsets", "nobody", "--topic", "order", "--to", "0"], "Did you mean 'orders'?"),
        (["reset-offsets", "nobody", "--topic", TOPIC, "--to", "soon"], "earliest, latest"),
        (["reset-offsets", "nobody", "--topic", TOPIC], "--to WHERE or --shift N"),
        (["reset-offsets", "nobody", "--to", "0"], "--all-topics"),
    ],
)
def test_errors_say_what_to_do(bootstrap: str, arguments: list[str], advice: str) -> None:
    result = run(bootstrap, *arguments)
    assert result.exit_code in {1, 2}
    assert advice in result.stderr
