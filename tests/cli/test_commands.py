"""topic, config, produce and consume against an embedded broker, as a person would use them."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from chronik.cli import main
from chronik.embedded import EmbeddedBroker

Run = Callable[..., Result]
NUMBERS = count()


@pytest.fixture(scope="session")
def run(chronik_broker: EmbeddedBroker) -> Run:
    """Runs a command; the keyword `input` is its stdin."""
    environment = {"CHRONIK_BOOTSTRAP": chronik_broker.bootstrap}

    def invoke(*arguments: object, **options: Any) -> Result:
        return CliRunner(env=environment).invoke(main, [str(it) for it in arguments], **options)

    return invoke


@pytest.fixture
def topic(run: Run) -> str:
    """A new topic of one partition."""
    name = f"cli-{next(NUMBERS)}"
    assert run("topic", "create", name, "--partitions", 1).exit_code == 0
    return name


@pytest.fixture
def numbered(run: Run, topic: str) -> str:
    """A new topic that holds 0 to 9."""
    fill(run, topic)
    return topic


@pytest.fixture(scope="session")
def ten(run: Run) -> str:
    """The same, for tests that only read."""
    assert run("topic", "create", "ten", "--partitions", 1).exit_code == 0
    fill(run, "ten")
    return "ten"


def fill(run: Run, topic: str) -> None:
    result = run("produce", topic, input="".join(f"{i}\n" for i in range(10)))
    assert result.exit_code == 0, result.stderr


def values(result: Result) -> list[str]:
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def described(run: Run, topic: str) -> dict[str, Any]:
    result = run("topic", "describe", topic, "--json")
    assert result.exit_code == 0, result.stderr
    (found,) = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


# -- without a broker


def test_nobody_listens_is_said_at_once_with_the_address_and_what_to_do() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: refuses connections
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        for arguments, code in (
            (["topic", "list"], 1),
            (["consume", "t"], 1),
            (["produce", "t"], 1),
            (["verify", "large-batch"], 2),
        ):
            result = CliRunner().invoke(main, [*arguments, "--bootstrap", address])
            assert result.exit_code == code
            assert address in result.stderr
            assert "chronik up" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("topic", "create", "a/b"), "ASCII alphanumerics"),
        (("topic", "create", "a", "--partitions", "0"), "1<=x<=100000"),
        (("topic", "create", "a", "--config", "x"), "no KEY=VALUE"),
        (("topic", "alter", "a"), "--partitions, --config or --delete-config"),
        (("topic", "list", "--bootstrap", "a:b"), "no HOST:PORT"),
        (("topic", "list", "--bootstrap", "http://localhost:9092"), "no HOST:PORT"),
        (("config", "describe"), "--topic NAME or --broker ID"),
        (("config", "set", "--topic", "a", "--broker", "1", "x=y"), "either --topic"),
        (("produce", "a", "--key", "k", "--key-separator", ":"), "--key is for every record"),
        (("produce", "a", "--key-separator", ""), "empty"),
        (("produce", "a", "--idempotent", "--acks", "1"), "needs --acks all"),
        (("consume", "a", "--from", "soon"), "earliest, latest, an offset"),
        (("consume", "a", "--follow", "--to", "5"), "--follow has no end"),
        (("consume", "a", "--json", "--offsets"), "--json has its own format"),
        (("consume", "a", "--format", "%q"), "%q means nothing"),
    ],
)
def test_bad_options_are_refused_before_anything_opens(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, [*arguments])
    assert result.exit_code == 2
    assert said in result.stderr


# -- topic and config


@pytest.mark.integration
def test_topic_create_list_describe_alter_delete(run: Run) -> None:
    created = run(
        "topic", "create", "whole-life", "--partitions", 3, "--config", "retention.ms=5000"
    )
    assert created.exit_code == 0
    listed = json.loads(run("topic", "list", "--json").stdout)
    assert {"name": "whole-life", "partitions": 3, "replication": 1} in listed
    found = described(run, "whole-life")
    assert found["configs"]["retention.ms"] == "5000"
    assert [one["leader"] for one in found["partitions"]] == [1, 1, 1]

    altered = ("topic", "alter", "whole-life", "--partitions", 4)
    assert run(*altered, "--config", "segment.ms=60000").exit_code == 0
    assert run("topic", "alter", "whole-life", "--delete-config", "retention.ms").exit_code == 0
    found = described(run, "whole-life")
    assert len(found["partitions"]) == 4
    assert found["configs"]["segment.ms"] == "60000"
    assert "retention.ms" not in found["configs"]
    assert "only grow" in run(*altered).stderr

    assert run("topic", "delete", "whole-life", "--yes").exit_code == 0
    assert "whole-life" not in run("topic", "list").stdout


@pytest.mark.integration
def test_describe_knows_offsets_and_size(run: Run, ten: str) -> None:
    (partition,) = described(run, ten)["partitions"]
    assert (partition["start_offset"], partition["end_offset"]) == (0, 10)
    assert partition["size_bytes"] > 60
    text = run("topic", "describe", ten).stdout
    assert text.startswith(f"{ten}: 1 partition, replication 1")


@pytest.mark.integration
def test_a_topic_that_exists_is_an_error_unless_that_is_fine(run: Run, topic: str) -> None:
    result = run("topic", "create", topic)
    assert result.exit_code == 1
    assert "already exists" in result.stderr
    assert run("topic", "create", topic, "--if-not-exists").exit_code == 0


@pytest.mark.integration
@pytest.mark.parametrize(
    "command",
    [
        ("topic", "describe"),
        ("topic", "delete"),
        ("topic", "alter", "-p", 5),
        ("topic", "alter", "--config", "retention.ms=1"),
        ("config", "describe", "--topic"),
        ("consume",),
    ],
)
def test_a_misspelt_topic_gets_a_suggestion(run: Run, command: tuple[object, ...]) -> None:
    run("topic", "create", "invoices", "--if-not-exists")
    result = run(*command, "invioces")
    assert result.exit_code == 1
    assert "Did you mean 'invoices'?" in result.stderr
    assert "invioces" not in run("topic", "list").stdout


@pytest.mark.integration
def test_configs_of_a_topic(run: Run, topic: str) -> None:
    of_topic = ("--topic", topic)
    assert run("config", "set", *of_topic, "retention.ms=7000").exit_code == 0
    found = json.loads(
        run("config", "describe", *of_topic, "retention.ms", "--json", "--docs").stdout
    )
    assert [(one["value"], one["source"]) for one in found] == [("7000", "topic")]
    assert "age" in found[0]["doc"]
    assert run("config", "delete", *of_topic, "retention.ms").exit_code == 0
    assert "retention.ms" not in run("config", "describe", *of_topic, "--changed").stdout


@pytest.mark.integration
def test_bad_configs_are_explained(run: Run, topic: str) -> None:
    unknown = run("config", "set", "--topic", topic, "retention.mss=1")
    assert unknown.exit_code == 1
    assert "'retention.ms'" in unknown.stderr
    bad = run("config", "set", "--topic", topic, "retention.ms=soon")
    assert bad.exit_code == 1
    assert "soon" in bad.stderr
    assert "has 1" in run("config", "describe", "--broker", 77).stderr


@pytest.mark.integration
def test_configs_of_a_broker(run: Run) -> None:
    found = json.loads(run("config", "describe", "--broker", 1, "--json").stdout)
    assert "num.partitions" in {one["name"] for one in found}


# -- produce and consume


@pytest.mark.integration
def test_lines_come_back_as_they_went(run: Run, topic: str) -> None:
    result = run("produce", topic, input="hello\n\nwörld\nno newline at the end")
    assert "4 records" in result.stderr
    assert result.stdout == ""
    assert values(run("consume", topic)) == ["hello", "", "wörld", "no newline at the end"]


@pytest.mark.integration
def test_produce_to_a_new_topic_says_that_it_is_new(run: Run) -> None:
    result = run("produce", "not-there-before", input="x\n")
    assert result.exit_code == 0
    assert "'not-there-before' is new" in result.stderr


@pytest.mark.integration
def test_keys_nulls_and_headers(run: Run, topic: str) -> None:
    result = run(
        *("produce", topic, "--key-separator", r"\t", "--null-value", "NULL", "--header", "a=b=c"),
        input="k1\tv1\nk2\tNULL\n\tx\ty\n",
    )
    assert result.exit_code == 0
    records = [json.loads(line) for line in values(run("consume", topic, "--json"))]
    found = [(one["key"], one["value"]) for one in records]
    assert found == [("k1", "v1"), ("k2", None), ("", "x\ty")]
    assert records[0]["headers"] == [{"name": "a", "value": "b=c"}]


@pytest.mark.integration
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression(run: Run, topic: str, compression: str) -> None:
    result = run("produce", topic, "--compression", compression, input="same\n" * 500)
    assert result.exit_code == 0
    assert values(run("consume", topic)) == ["same"] * 500


@pytest.mark.integration
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks(run: Run, topic: str, acks: str) -> None:
    assert run("produce", topic, "--acks", acks, input="x\n").exit_code == 0


@pytest.mark.integration
def test_a_file_key_partition_and_rate(run: Run, tmp_path: Path) -> None:
    run("topic", "create", "from-file", "--partitions", 3)
    (tmp_path / "lines").write_text("a\nb\nc\n")
    options = ("--file", tmp_path / "lines", "--key", "k", "--partition", 2, "--rate", 1000)
    assert run("produce", "from-file", *options).exit_code == 0
    shown = values(run("consume", "from-file", "--partition", 2, "--format", r"%k:%v@%p\n"))
    assert shown == ["k:a@2", "k:b@2", "k:c@2"]
    assert values(run("consume", "from-file", "-p", 0, "-p", 1)) == []


@pytest.mark.integration
def test_a_line_without_separator_fails_after_what_came_before_is_delivered(
    run: Run, topic: str
) -> None:
    result = run("produce", topic, "--key-separator", ":", input="k:v\nbroken\nk:w\n")
    assert result.exit_code == 1
    assert "1 record" in result.stderr
    assert "line 2 has no separator" in result.stderr
    assert values(run("consume", topic)) == ["v"]


@pytest.mark.integration
def test_a_record_that_the_broker_refuses_is_a_failure(run: Run, topic: str) -> None:
    run("config", "set", "--topic", topic, "max.message.bytes=1000")
    result = run("produce", topic, input="x" * 5000 + "\n")
    assert result.exit_code == 1
    assert "1 record of 1 not delivered" in result.stderr
    assert "max.message.bytes" in result.stderr


@pytest.mark.integration
def test_a_partition_that_is_not_there_is_refused(run: Run, topic: str) -> None:
    assert "0 to 0" in run("produce", topic, "--partition", 4, input="x\n").stderr
    assert "none with the number 4" in run("consume", topic, "--partition", 4).stderr


@pytest.mark.integration
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), range(10)),
        (("--from", "latest"), range(0)),
        (("--from", "7"), range(7, 10)),
        (("--from", "10"), range(0)),
        (("--from", "-3"), range(7, 10)),
        (("--from", "2", "--to", "5"), range(2, 5)),
        (("--to", "-8"), range(2)),
        (("--count", "4"), range(4)),
        (("--from", "-10m"), range(10)),
        (("--from", "2020-01-01", "--to", "2021-01-01T00:00Z"), range(0)),
        (("--follow", "--from", "6", "--count", "2"), range(6, 8)),
    ],
)
def test_ranges(run: Run, ten: str, options: tuple[str, ...], expected: range) -> None:
    assert values(run("consume", ten, *options)) == [str(i) for i in expected]


@pytest.mark.integration
def test_an_offset_beyond_the_end_is_named(run: Run, ten: str) -> None:
    result = run("consume", ten, "--from", 99)
    assert result.exit_code == 2
    assert "offset 99 lies beyond the end, which is 10" in result.stderr


@pytest.mark.integration
def test_the_times_of_records_divide_them(run: Run, numbered: str) -> None:
    times = [
        json.loads(line)["timestamp_ms"] for line in values(run("consume", numbered, "--json"))
    ]
    from datetime import UTC, datetime

    after = datetime.fromtimestamp((times[-1] + 1) / 1000, UTC).isoformat()
    assert run("produce", numbered, input="late\n").exit_code == 0
    assert values(run("consume", numbered, "--from", after)) == ["late"]
    assert values(run("consume", numbered, "--to", after)) == [str(i) for i in range(10)]


@pytest.mark.integration
def test_a_bad_librdkafka_setting_is_a_usage_error(run: Run, topic: str) -> None:
    result = run("consume", topic, "-X", "no.such.setting=1")
    assert result.exit_code == 2
    assert "no.such.setting" in result.stderr


# -- as a process


@pytest.fixture
def follower(chronik_broker: EmbeddedBroker, numbered: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "chronik", "consume", numbered, "--follow", "--from", "8"]
    process = subprocess.Popen(
        [*command, "--bootstrap", chronik_broker.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


@pytest.mark.integration
def test_follow_shows_new_records_at_once_and_ctrl_c_ends_it_quietly(
    run: Run, numbered: str, follower: subprocess.Popen[bytes]
) -> None:
    assert follower.stdout is not None
    assert [follower.stdout.readline() for _ in range(2)] == [b"8\n", b"9\n"]
    assert run("produce", numbered, input="new\n").exit_code == 0
    assert follower.stdout.readline() == b"new\n"
    follower.send_signal(signal.SIGINT)
    rest, errors = follower.communicate(timeout=20)
    assert (rest, errors, follower.returncode) == (b"", b"", 130)


@pytest.mark.integration
def test_a_reader_that_goes_away_ends_it_quietly(
    run: Run, chronik_broker: EmbeddedBroker, topic: str
) -> None:
    assert run("produce", topic, input="x" * 100 + "\n" * 5000).exit_code == 0
    environment = {**os.environ, "CHRONIK_BOOTSTRAP": chronik_broker.bootstrap}
    process = subprocess.Popen(
        [sys.executable, "-m", "chronik", "consume", topic, "--offsets"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith(b"0:0\t")
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(20) == 141
