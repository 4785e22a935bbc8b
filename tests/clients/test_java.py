"""Kafka's own Java clients, and the command line tools that come with Kafka."""

import json
import os
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.clients.adapters.java import Java, JavaAdmin
from tests.clients.kit import Client, Record, eventually, payload
from tests.clients.scenarios import DeepAdministration, Library, NewTopic
from tests.servers import KAFKA_SH, Server, kafka_libs

Tool = Callable[..., str]
FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class TestJava(Library):
    """KafkaProducer and KafkaConsumer."""

    @pytest.fixture
    def client(self, java: Client) -> Client:
        return java


class TestJavaAdmin(DeepAdministration):
    """Admin."""

    @pytest.fixture
    def admin(self, jvm: Java) -> JavaAdmin:
        return JavaAdmin(jvm)

    def test_log_dirs_tell_the_size_of_a_replica(
        self, admin: JavaAdmin, topic: NewTopic, java: Client
    ) -> None:
        name = topic()
        java.produce(name, [Record(b"x" * 10_000)])
        (broker,) = admin.cluster().brokers
        assert 10_000 < admin.log_size(name, broker) < 11_000

    def test_producers_are_described(self, admin: JavaAdmin, topic: NewTopic, java: Client) -> None:
        name = topic()
        assert admin.producers(name) == []
        java.produce(name, [Record(payload(n)) for n in range(7)], idempotent=True)
        ((producer_id, epoch, last_sequence),) = admin.producers(name)
        assert producer_id >= 0
        assert (epoch, last_sequence) == (0, 6)


@pytest.fixture(scope="session")
def tool(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """Runs a tool of Kafka's against the server and returns what it printed."""
    directory = tmp_path_factory.mktemp("tools")
    (directory / "libs").symlink_to(kafka_libs().resolve())

    def run(name: str, *arguments: str, text: str = "") -> str:
        done = subprocess.run(
            [KAFKA_SH, "tool", directory, name, *arguments],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "JDK_JAVA_OPTIONS": FAST_START},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_kafka_topics_creates_describes_alters_and_deletes(tool: Tool, server: Server) -> None:
    name = f"tool-{uuid.uuid4().hex[:12]}"
    topics = ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", server.bootstrap)
    chosen = ("--topic", name)
    assert f"Created topic {name}." in tool(*topics, "--create", *chosen, "--partitions", "2")
    tool(*topics, "--alter", *chosen, "--partitions", "3")
    described = tool(*topics, "--describe", *chosen)
    assert "PartitionCount: 3" in described
    assert "ReplicationFactor: 1" in described
    assert name in tool(*topics, "--list").split()
    tool(*topics, "--delete", *chosen)
    assert eventually(lambda: name not in tool(*topics, "--list").split())


def test_console_producer_to_console_consumer(tool: Tool, server: Server, topic: NewTopic) -> None:
    name = topic()
    where = ("--bootstrap-server", server.bootstrap, "--topic", name)
    lines = "".join(f"k{n}:value {n}\n" for n in range(100))
    keys = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tool("org.apache.kafka.tools.ConsoleProducer", *where, *keys, text=lines)
    reading = ("--partition", "0", "--offset", "earliest", "--max-messages", "100")
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    assert tool(consumer, *where, *reading, *shown) == lines


def test_get_offset_shell_shows_the_ends(
    tool: Tool, server: Server, topic: NewTopic, confluent: Client
) -> None:
    name = topic(partitions=2)
    confluent.produce(name, [Record(b"v", partition=1)] * 5)
    shell = ("org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", server.bootstrap)
    assert tool(*shell, "--topic", name).splitlines() == [f"{name}:0:0", f"{name}:1:5"]


def test_kafka_delete_records_moves_the_start(
    tool: Tool, server: Server, topic: NewTopic, confluent: Client, tmp_path: Path
) -> None:
    name = topic()
    confluent.produce(name, [Record(payload(n)) for n in range(10)])
    plan = {"partitions": [{"topic": name, "partition": 0, "offset": 6}], "version": 1}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    command = ("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file")
    where = ("--bootstrap-server", server.bootstrap)
    printed = tool(*command, str(tmp_path / "plan.json"), *where)
    assert f"partition: {name}-0\tlow_watermark: 6" in printed
    assert confluent.offsets(name) == (6, 10)


def test_kafka_log_dirs_knows_the_replica(
    tool: Tool, server: Server, topic: NewTopic, confluent: Client
) -> None:
    name = topic()
    confluent.produce(name, [Record(b"x" * 5000)])
    command = ("org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", name)
    printed = tool(*command, "--bootstrap-server", server.bootstrap)
    found = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    replicas = [each for log in found["brokers"][0]["logDirs"] for each in log["partitions"]]
    assert [each["partition"] for each in replicas] == [f"{name}-0"]
    assert replicas[0]["size"] > 5000


def test_kafka_configs_alters_and_describes(tool: Tool, server: Server, topic: NewTopic) -> None:
    name = topic()
    command = ("kafka.admin.ConfigCommand", "--bootstrap-server", server.bootstrap)
    entity = ("--entity-type", "topics", "--entity-name", name)
    tool(*command, *entity, "--alter", "--add-config", "retention.ms=777000")
    assert "retention.ms=777000" in tool(*command, *entity, "--describe")


def test_kafka_consumer_groups_lists_describes_resets_and_deletes(
    tool: Tool, server: Server, topic: NewTopic, confluent: Client
) -> None:
    name, group = topic(), f"group-{uuid.uuid4().hex[:12]}"
    confluent.produce(name, [Record(payload(n)) for n in range(10)])
    reader = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    where = ("--bootstrap-server", server.bootstrap)
    reading = ("--topic", name, "--group", group, "--from-beginning", "--max-messages", "10")
    tool(reader, *where, *reading)
    groups = ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *where)
    chosen = ("--group", group)
    assert group in tool(*groups, "--list").split()
    assert lag_row(tool(*groups, "--describe", *chosen)) == [group, name, "0", "10", "10", "0"]
    assert "Empty" in tool(*groups, "--describe", *chosen, "--state")
    moved = ("--reset-offsets", "--topic", name, "--shift-by", "-4", "--execute")
    tool(*groups, *chosen, *moved)
    assert lag_row(tool(*groups, "--describe", *chosen)) == [group, name, "0", "6", "10", "4"]
    tool(*groups, "--delete", *chosen)
    assert group not in tool(*groups, "--list").split()


def lag_row(printed: str) -> list[str]:
    """Group, topic, partition, current offset, end offset and lag of the only partition.

    The tool of this version prints the leader epoch too; it is left out.
    """
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    (head,) = (line for line in lines if line[0] == "GROUP")
    (row,) = (line for line in lines[lines.index(head) + 1 :])
    wanted = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    return [row[head.index(column)] for column in wanted]


def test_kafka_broker_api_versions_finds_the_broker(tool: Tool, server: Server) -> None:
    command = "org.apache.kafka.tools.BrokerApiVersionsCommand"
    printed = tool(command, "--bootstrap-server", server.bootstrap)
    assert printed.startswith(server.bootstrap)
    assert "Produce(0): " in printed
    assert "usable: " in printed


def test_producer_performance_gets_every_record_acknowledged(
    tool: Tool, server: Server, topic: NewTopic, confluent: Client
) -> None:
    name = topic(partitions=3)
    amount = ("--num-records", "20000", "--record-size", "200", "--throughput", "-1")
    settings = ("--producer-props", f"bootstrap.servers={server.bootstrap}", "acks=all")
    printed = tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", name, *amount, *settings
    )
    assert "20000 records sent" in printed
    assert sum(confluent.offsets(name, partition)[1] for partition in range(3)) == 20000


def test_verifiable_producer_says_what_is_there(
    tool: Tool, server: Server, topic: NewTopic, confluent: Client
) -> None:
    name = topic()
    where = ("--bootstrap-server", server.bootstrap, "--topic", name)
    printed = tool("org.apache.kafka.tools.VerifiableProducer", *where, "--max-messages", "500")
    events = [json.loads(line) for line in printed.splitlines()]
    acked = [event for event in events if event["name"] == "producer_send_success"]
    assert [event["offset"] for event in acked] == list(range(500))
    got = confluent.consume(name, 500)
    assert [each.value for each in got] == [str(event["value"]).encode() for event in acked]
