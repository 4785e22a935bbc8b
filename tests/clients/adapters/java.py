"""Kafka's own Java clients, in one Java process that takes a JSON line per call."""

import base64
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.clients.kit import (
    SECONDS_MAX,
    Acks,
    Client,
    Cluster,
    Codec,
    DeepAdmin,
    Received,
    Record,
    RefusedError,
)
from tests.servers import kafka_libs
from typing_extensions import override

SOURCE = Path(__file__).with_name("JavaClient.java")


class Java:
    """The Java process."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        logging = directory / "log4j2.properties"
        logging.write_text("rootLogger.level = OFF\n")
        self._errors = (directory / "java.log").open("w+")
        self._process = subprocess.Popen(
            [
                "java",
                "-Xmx256m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                f"-Dlog4j2.configurationFile=file:{logging}",
                "-cp",
                f"{kafka_libs()}/*",
                str(SOURCE),
                bootstrap,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def call(self, call: str, **arguments: object) -> Any:
        """What the Java method returned."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"call": call, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"the Java client died: {self._errors.read()[-2000:]}")
        answer = json.loads(line)
        if "code" in answer:
            raise RefusedError(answer["code"], answer["message"])
        return answer["result"]

    def close(self) -> None:
        self._process.communicate(timeout=SECONDS_MAX)
        self._errors.close()


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


class JavaClient(Client):
    """KafkaProducer and KafkaConsumer."""

    name = "java"

    def __init__(self, java: Java, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._java = java

    @override
    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[int]:
        lines = [sendable(record) for record in records]
        options = {"codec": codec, "acks": acks, "idempotent": str(idempotent).lower()}
        found: list[int] = self._java.call("produce", topic=topic, records=lines, **options)
        return found

    @override
    def consume(
        self,
        topic: str,
        count: int,
        partitions: Sequence[int] = (0,),
        start: int = 0,
        seconds: float = SECONDS_MAX,
    ) -> list[Received]:
        where = {"topic": topic, "partitions": list(partitions), "start": start}
        found = self._java.call("consume", count=count, seconds=seconds, **where)
        return [received(each) for each in found]

    @override
    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        first, last = self._java.call("offsets", topic=topic, partition=partition)
        return first, last

    @override
    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        where = {"topic": topic, "partition": partition}
        found: int | None = self._java.call("offset_at", time=timestamp_ms, **where)
        return found


def sendable(record: Record) -> dict[str, object]:
    return {
        "value": encoded(record.value),
        "key": encoded(record.key),
        "partition": record.partition,
        "time": record.timestamp_ms,
        "headers": [[key, encoded(value)] for key, value in record.headers],
    }


def received(answer: dict[str, Any]) -> Received:
    return Received(
        partition=answer["partition"],
        offset=answer["offset"],
        timestamp_ms=answer["time"],
        key=decoded(answer["key"]),
        value=decoded(answer["value"]),
        headers=tuple((key, decoded(value)) for key, value in answer["headers"]),
    )


class JavaAdmin(DeepAdmin):
    """Admin."""

    def __init__(self, java: Java) -> None:
        self._java = java

    @override
    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        asked = {"partitions": partitions, "configs": dict(configs or {})}
        self._java.call("create_topic", topic=name, **asked)

    @override
    def delete_topic(self, name: str) -> None:
        self._java.call("delete_topic", topic=name)

    @override
    def topics(self) -> set[str]:
        return set(self._java.call("topics"))

    @override
    def partitions(self, topic: str) -> dict[int, int]:
        found = self._java.call("partitions", topic=topic)
        return {int(partition): leader for partition, leader in found.items()}

    @override
    def create_partitions(self, topic: str, total: int) -> None:
        self._java.call("create_partitions", topic=topic, total=total)

    @override
    def config(self, topic: str) -> dict[str, str | None]:
        return dict(self._java.call("config", topic=topic))

    @override
    def alter_config(self, topic: str, key: str, value: str) -> None:
        self._java.call("alter_config", topic=topic, key=key, value=value)

    @override
    def delete_records(self, topic: str, before: int, partition: int = 0) -> int:
        where = {"topic": topic, "partition": partition}
        return int(self._java.call("delete_records", before=before, **where))

    @override
    def cluster(self) -> Cluster:
        cluster_id, brokers, controller = self._java.call("cluster")
        return Cluster(cluster_id, {int(key): where for key, where in brokers.items()}, controller)

    @override
    def list_offset(self, topic: str, spec: str, partition: int = 0) -> tuple[int, int]:
        where = {"topic": topic, "partition": partition}
        offset, timestamp = self._java.call("list_offset", spec=spec, **where)
        return offset, timestamp

    def log_size(self, topic: str, broker: int, partition: int = 0) -> int:
        """Bytes of the replica on that broker, by DescribeLogDirs."""
        where = {"topic": topic, "partition": partition}
        return int(self._java.call("log_size", broker=broker, **where))

    def producers(self, topic: str, partition: int = 0) -> list[tuple[int, int, int]]:
        """Producer id, epoch and last sequence number of each active producer."""
        found = self._java.call("producers", topic=topic, partition=partition)
        return [(each[0], each[1], each[2]) for each in found]
