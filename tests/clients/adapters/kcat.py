"""kcat, a process per call."""

import re
import subprocess
from collections.abc import Sequence

from tests.clients.kit import SECONDS_MAX, Acks, Client, Codec, Received, Record, RefusedError
from typing_extensions import override

KEY_END = "\x1f"
RECORD_END = "\x1e"
ERROR_CODES = {"Message size too large": 10, "Offset out of range": 1}
HEADER = re.compile(rb"(-?\d+) (-?\d+) (-?\d+) (-?\d+) (-?\d+) ([^\n]*)\n")
FORMAT = "%p %o %T %K %S %h\\n%k%s"


class Kcat(Client):
    """Text records without separators in them; the headers are those of the first record."""

    name = "kcat"
    null_key_and_value = True
    null_header_value = False

    def _run(self, *arguments: str, data: bytes | None = None, seconds: float = 40) -> bytes:
        command = ["kcat", "-b", self.bootstrap, "-X", "socket.nagle.disable=true", *arguments]
        done = subprocess.run(
            command, input=data, capture_output=True, timeout=seconds, check=False
        )
        if done.returncode:
            message = done.stderr.decode(errors="replace")
            codes = [code for text, code in ERROR_CODES.items() if text in message]
            raise RefusedError(codes[0] if codes else -1, message)
        return done.stdout

    @override
    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[int]:
        before = [self.offsets(topic, record.partition)[1] for record in records[:1]]
        assert len({record.partition for record in records}) == 1
        options = ["-z", codec, "-p", str(records[0].partition), "-Z", "-K", KEY_END]
        for key, value in records[0].headers:
            options += ["-H", f"{key}={(value or b'').decode()}"]
        more = {"acks": acks, "enable.idempotence": str(idempotent).lower()}
        more |= {"message.max.bytes": "20000000", "linger.ms": "5"}
        for name, setting in more.items():
            options += ["-X", f"{name}={setting}"]
        lines = [(each.key or b"") + KEY_END.encode() + (each.value or b"") for each in records]
        data = RECORD_END.encode().join(lines)
        self._run("-P", "-t", topic, "-D", RECORD_END, *options, data=data)
        return [before[0] + index for index in range(len(records))]

    @override
    def consume(
        self,
        topic: str,
        count: int,
        partitions: Sequence[int] = (0,),
        start: int = 0,
        seconds: float = SECONDS_MAX,
    ) -> list[Received]:
        assert len(partitions) == 1
        where = ["-t", topic, "-p", str(partitions[0]), "-o", str(start), "-c", str(count)]
        options = ["-e", "-q", "-X", "auto.offset.reset=error", "-X", "fetch.wait.max.ms=100"]
        return list(parsed(self._run("-C", *where, *options, "-f", FORMAT)))

    @override
    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        first, last = (self._query(topic, partition, time) for time in (-2, -1))
        return first, last

    @override
    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        found = self._query(topic, partition, timestamp_ms)
        end = self._query(topic, partition, -1)
        return found if found >= 0 and found < end else None

    def _query(self, topic: str, partition: int, time: int) -> int:
        answer = self._run("-Q", "-t", f"{topic}:{partition}:{time}").decode()
        found = re.search(r"offset (-?\d+)", answer)
        assert found, answer
        return int(found[1])

    def metadata(self, topic: str) -> str:
        """kcat -L."""
        return self._run("-L", "-t", topic).decode()


def parsed(output: bytes) -> Sequence[Received]:
    records: list[Received] = []
    position = 0
    while found := HEADER.match(output, position):
        partition, offset, timestamp, key_size, size = map(int, found.groups()[:5])
        start, middle = found.end(), found.end() + max(0, key_size)
        position = middle + max(0, size)
        key = None if key_size < 0 else output[start:middle]
        value = None if size < 0 else output[middle:position]
        pairs = [pair.partition(b"=") for pair in found[6].split(b",") if pair]
        headers = tuple((name.decode(), text) for name, _, text in pairs)
        records.append(Received(partition, offset, timestamp, key, value, headers))
    assert position == len(output), output[position : position + 200]
    return records
