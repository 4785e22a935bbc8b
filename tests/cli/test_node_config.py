"""A node's configuration: priority of its sources, and complaints with line and suggestion."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from chronik.cli import main
from chronik.cli._config_file import read_environment, read_toml, variable
from chronik.model.node_config import Given, NodeConfigError, settle
from chronik.model.node_keys import NODE_KEYS
from chronik.model.settings import NodeSettings

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
WHOLE = """\
[node]
id = 1
data = "/data"

[listen]
host = "10.0.0.1"
port = 9092

[cluster]
peers = [
  "1@10.0.0.1:9192",
  "2@10.0.0.2:9192",
  "3@10.0.0.3:9192",
]

[configs]
num.partitions = 3
"""


def read(text: str, environment: dict[str, str] | None = None, *flags: Given) -> NodeSettings:
    return settle([*read_toml(text, "n.toml"), *read_environment(environment or {}), *flags])


def complaints(text: str, environment: dict[str, str] | None = None) -> tuple[str, ...]:
    with pytest.raises(NodeConfigError) as caught:
        read(text, environment)
    return caught.value.problems


def test_a_file_alone_makes_settings() -> None:
    settings = read(WHOLE)
    assert settings == NodeSettings(
        data_dir="/data",
        node_id=1,
        host="10.0.0.1",
        port=9092,
        peer_port=9192,
        peers=((1, "10.0.0.1", 9192), (2, "10.0.0.2", 9192), (3, "10.0.0.3", 9192)),
        configs=(("num.partitions", "3"),),
    )


def test_the_environment_wins_over_the_file_and_flags_over_both() -> None:
    environment = {
        "CHRONIK_LISTEN_PORT": "1001",
        "CHRONIK_NODE_RACK": "b",
        "CHRONIK_CONFIGS_NUM_PARTITIONS": "7",
        "CHRONIK_BOOTSTRAP": "elsewhere:9092",
    }
    settings = read(WHOLE, environment, Given("node.rack", "c", "--rack"))
    assert (settings.port, settings.rack) == (1001, "c")
    assert settings.configs == (("num.partitions", "7"),)


def test_no_file_is_needed() -> None:
    settings = read("", {"CHRONIK_NODE_ID": "5", "CHRONIK_NODE_DATA": "d"})
    assert (settings.node_id, settings.data_dir, settings.port) == (5, "d", 9092)


CHANGES = [
    ("id = 1\n", "idd = 1\n", "n.toml:2: unknown key 'node.idd': did you mean 'node.id'?"),
    ("[listen]", "[lisen]", "n.toml:6: unknown key 'lisen.host': did you mean 'listen.host'?"),
    ("port = 9092", 'port = "x"', "n.toml:7: listen.port: 'x' is no number from 0 to 65535"),
    ("port = 9092", "port = 70000", "n.toml:7: listen.port: 70000 is no number from 0 to 65535"),
    ("port = 9092", "port = true", "n.toml:7: listen.port: True is no number"),
    ("id = 1\n", "id = -1\n", "n.toml:2: node.id: -1 is no number"),
    ('data = "/data"', "data = 7", "n.toml:3: node.data: 7 is no text"),
    ('data = "/data"', 'data = ""', "n.toml:3: node.data: '' is empty"),
    ('"2@10', '"1@10', "n.toml:12: cluster.peers: node 1 appears twice"),
    ("2@10.0.0.2", "2@10.0.0.1", "n.toml:12: cluster.peers: nodes 1 and 2 have one address"),
    ("2@10.0.0.2:", "2@10.0.0.2", "n.toml:12: cluster.peers: '2@10.0.0.29192' is no peer"),
    ("3@10.0.0.3", "3@0.0.0.0", "n.toml:13: cluster.peers: '3@0.0.0.0:9192': nobody can"),
    ("id = 1\n", "id = 4\n", "n.toml:10: cluster.peers: this node's id 4 is not among [1, 2, 3]"),
    ("port = 9092", "port = 9192", "n.toml:7: peer.port and listen.port are both 9192"),
    ('"10.0.0.1"\nport', '"0.0.0.0"\nport', "n.toml:6: listen.host: no client can connect to"),
    ("num.partitions", "num.partition", "n.toml:17: unknown broker config 'num.partition': did"),
    ("partitions = 3", 'partitions = "many"', "n.toml:17: "),
    ("num.partitions", "log.dirs", "n.toml:17: log.dirs does not belong under [configs]: use"),
    ("id = 1\n", "id = \n", "n.toml:2: Invalid value"),
    ("[node]", "num.partitions = 1\n[node]", "n.toml:1: unknown key 'num.partitions': broker"),
    ("[node]", "rack = 'a'\n[node]", "n.toml:1: unknown key 'rack': did you mean node.rack?"),
    ("[node]", "[node]\ntrace = 'all'", "n.toml:2: node.trace: 'all' is none of off, memory, fil"),
    ("id = 1\n", "", "node.id is missing: write id = 1 under [node], or set CHRONIK_NODE_ID"),
]


@pytest.mark.parametrize(("old", "new", "expected"), CHANGES, ids=[one[2] for one in CHANGES])
def test_a_mistake_is_named_with_its_line_and_what_to_do(old: str, new: str, expected: str) -> None:
    assert old in WHOLE
    (problem,) = complaints(WHOLE.replace(old, new, 1))[:1]
    assert problem.startswith(expected)


def test_all_mistakes_are_told_at_once() -> None:
    text = WHOLE.replace("id = 1\n", "idd = 1\n").replace("port = 9092", "port = 'x'")
    assert [one.split(" ")[0] for one in complaints(text)] == ["n.toml:2:", "n.toml:7:"]


def test_a_mistake_in_the_environment_names_the_variable() -> None:
    assert complaints(WHOLE, {"CHRONIK_LISTEN_PORT": "x"})[0].startswith("CHRONIK_LISTEN_PORT: ")
    assert complaints(WHOLE, {"CHRONIK_NODE_RCK": "a"}) == (
        "CHRONIK_NODE_RCK: unknown variable: did you mean CHRONIK_NODE_RACK?",
    )


def test_a_joining_node_need_not_be_among_the_peers() -> None:
    text = WHOLE.replace("id = 1\n", "id = 4\n").replace("[cluster]", "[cluster]\njoin = true")
    assert read(text).join


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_documented_examples_are_right(number: int) -> None:
    path = EXAMPLES / f"node{number}.toml"
    result = CliRunner().invoke(main, ["node", "--config", str(path), "--check"])
    assert result.exit_code == 0, result.output
    assert f"10.0.0.{number}" in result.stdout


def test_the_command_refuses_before_anything_opens(tmp_path: Path) -> None:
    path = tmp_path / "n.toml"
    path.write_text(WHOLE.replace('"/data"', f'"{tmp_path}/data"').replace("id = 1\n", "id = 9\n"))
    result = CliRunner().invoke(main, ["node", "--config", str(path)])
    assert result.exit_code == 78
    assert f"{path}:10: cluster.peers: this node's id 9" in result.stderr
    assert not (tmp_path / "data").exists()


def test_flags_win(tmp_path: Path) -> None:
    path = tmp_path / "n.toml"
    path.write_text(WHOLE)
    flags = ["--listen", "[::1]:7000", "--set", "num.partitions=9", "--http", "127.0.0.1:7002"]
    result = CliRunner().invoke(main, ["node", "--config", str(path), "--check", *flags])
    assert result.exit_code == 0, result.output
    shown = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert (shown["host"], shown["port"], shown["http_port"]) == ("::1", "7000", "7002")
    assert shown["configs"] == "num.partitions=9"


def test_every_key_is_documented_with_its_variable() -> None:
    page = (EXAMPLES.parent / "reference" / "configuration.md").read_text()
    for key in NODE_KEYS.values():
        assert f"| `{key.name}` | `{variable(key.name)}` |" in page
        assert key.doc in page
