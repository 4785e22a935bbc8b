"""Options, scenario files, and the server that the client tests talk to.

`pytest --server kafka` runs the same client tests against Apache Kafka, the judge of what is right.
"""

import gc
import importlib
import re
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import settings
from typing_extensions import override

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # so that test modules can import tests.servers and the like
    sys.path.insert(0, str(ROOT))

from tests import servers  # noqa: E402

# No test is judged by its time: a busy machine stops a process for longer than any deadline.
settings.register_profile("chronik", deadline=None)
settings.load_profile("chronik")

MARKERS = (
    "groups: needs consumer groups",
    "chronik_only(reason): Apache Kafka differs by nature",
)
NewTopic = Callable[..., str]
INTEGRATION_ALL = {"clients", "cluster_nodes"}
"""Folders in which every test is one of integration."""
INTEGRATION_FILE = re.compile(r"^pytestmark = \[?pytest\.mark\.integration\b", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="rewrite expected scenario output")
    parser.addoption("--server", choices=("chronik", "kafka"), default="chronik")
    parser.addoption("--soak", action="store_true", help="run the long versions too")


def terminate(number: int, _: object) -> None:
    """Ends the run through its fixtures, so that no server is left behind."""
    pytest.exit(f"signal {number}", returncode=128 + number)


def pytest_configure(config: pytest.Config) -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, terminate)
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    server = cast("servers.ServerName", config.getoption("--server"))
    for item in items:
        if item.get_closest_marker("groups") and not servers.SERVES_GROUPS[server]:
            item.add_marker(pytest.mark.skip(reason="consumer groups are not served yet"))
        if item.get_closest_marker("soak") and not config.getoption("--soak"):
            item.add_marker(pytest.mark.skip(reason="a long run: --soak"))
        only = item.get_closest_marker("chronik_only")
        if only and server != "chronik":
            item.add_marker(pytest.mark.skip(reason=only.kwargs["reason"]))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without integration tests, as in `make check`, the clients they need are not imported."""
    if "not integration" not in config.getoption("markexpr"):
        return None
    if collection_path.suffix == ".py":
        return bool(INTEGRATION_FILE.search(collection_path.read_text())) or None
    return (collection_path.name in INTEGRATION_ALL and collection_path.is_dir()) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests and their modules stay: the garbage collector need not look at them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # extensions report what is not freed in the end


# ---- scenario files


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".txt" and "scenarios" in file_path.parts:
        collector: pytest.Collector = ScenarioFile.from_parent(parent, path=file_path)
        return collector
    return None


class ScenarioFile(pytest.File):
    """One scenario file is one test."""

    @override
    def collect(self) -> Iterator[pytest.Item]:
        yield Scenario.from_parent(self, name=self.path.stem)


class ScenarioError(AssertionError):
    """A block whose output is not what the file says."""


class Scenario(pytest.Item):
    """Blank-line separated blocks `command lines / ---- / expected`, played in one fresh world."""

    @override
    def runtest(self) -> None:
        play = runner_for(self.path)()
        blocks = self.path.read_text().strip().split("\n\n")
        played = [play_block(play, block) for block in blocks]
        if self.config.getoption("--rewrite"):
            self.path.write_text("\n\n".join(played) + "\n")
            return
        for expected, actual in zip(blocks, played, strict=True):
            if expected.rstrip() != actual:
                raise ScenarioError(f"expected\n\n{expected}\n\nbut got\n\n{actual}")

    @override
    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if isinstance(excinfo.value, ScenarioError):
            return f"{self.path}: {excinfo.value}\n\n(--rewrite takes the new output over)"
        return super().repr_failure(excinfo, style)

    @override
    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name


def play_block(play: Callable[[str], str], block: str) -> str:
    """The block with the output that it has now; one of comments only stays as it is."""
    if all(line.startswith("#") for line in block.splitlines()):
        return block.rstrip()
    command, _, _ = block.partition("\n----")
    return f"{command}\n----\n{play(command).strip()}".rstrip()


def runner_for(scenario: Path) -> Callable[[], Callable[[str], str]]:
    """`play` of the scenario_runner.py next to the scenarios folder, or in a folder above it."""
    for folder in scenario.parents:
        if (folder / "scenario_runner.py").exists():
            name = ".".join((folder / "scenario_runner").relative_to(ROOT).parts)
            return cast("Callable[[], Callable[[str], str]]", importlib.import_module(name).play)
        if folder == ROOT:
            break
    raise FileNotFoundError(f"no scenario_runner.py above {scenario}")


# ---- the server


@pytest.fixture(scope="session")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[servers.Server]:
    """A running server; each xdist worker has its own."""
    name = request.config.getoption("--server")
    with servers.serving(name, tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def topic(server: servers.Server) -> NewTopic:
    """Makes new topics: `topic(partitions=3, **{"max.message.bytes": 2000})` returns the name."""
    from tests.clients.topics import TopicMaker

    return TopicMaker(server.bootstrap)
