"""Runs kafka-python's own integration tests against Chronik; writes docs/reference/conformance.md.

The tests are in the source package, fetched once into .peers (hashes from requirements.lock). What
may fail, and why, is in tests/conformance/expected.toml; anything else is a difference, and exit 1.
"""

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".peers"
LOCK = ROOT / "requirements.lock"
EXPECTED = ROOT / "tests" / "conformance" / "expected.toml"
PAGE = ROOT / "docs" / "reference" / "conformance.md"
KAFKA_VERSION = "4.3"
"""The release whose API versions Chronik advertises; the suite asks for its features."""
KAFKA_PASSES = 55
TEST_SECONDS_MAX = 120
SETTINGS = (
    "num.partitions=4",
    "group.min.session.timeout.ms=1000",
    "group.initial.rebalance.delay.ms=0",
)
"""As in the suite's own server.properties, where the broker is number 0."""

INI = "[pytest]\naddopts = -p no:randomly -p no:cacheprovider\n"
SERVICE = '''"""In place of the module that the source package leaves out: servers run elsewhere."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def dump_logs(self):
        pass


class SpawnedService:
    def __init__(self, *_):
        raise RuntimeError("this run uses the broker it was given")
'''


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test ended: passed, failed (errors too) or skipped, and what it said."""

    kind: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Exemption:
    """Tests that do not pass, and why."""

    needs: str
    reason: str
    outcome: str
    message: str
    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expected:
    """The contents of expected.toml."""

    version: str
    total: int
    exemptions: tuple[Exemption, ...]

    def count(self, outcome: str) -> int:
        """Tests that end so."""
        if outcome == "passed":
            return self.total - sum(len(one.tests) for one in self.exemptions)
        return sum(len(one.tests) for one in self.exemptions if one.outcome == outcome)


def read_expected(text: str) -> Expected:
    """Parses expected.toml."""
    found = tomllib.loads(text)
    exemptions = tuple(
        Exemption(**{**one, "tests": tuple(one["tests"])}) for one in found["except"]
    )
    return Expected(found["kafka_python"], found["total"], exemptions)


def locked_version(lock: str) -> str:
    """The kafka-python that the project tests with."""
    found = re.search(r"^kafka-python==([^ ]+)", lock, re.MULTILINE)
    assert found is not None
    return found[1]


def locked_lines(lock: str) -> str:
    """Version and hashes of kafka-python, for pip."""
    found = re.search(r"^kafka-python==.*\n(?: +--hash=.*\n)+", lock, re.MULTILINE)
    assert found is not None
    return found[0]


# ---- the suite


def fetch(version: str) -> Path:
    """The folder with the suite; downloads the source package where it is missing."""
    folder = PEERS / f"kafka-python-{version}"
    if not (folder / "pytest.ini").exists():
        with tempfile.TemporaryDirectory() as temporary:
            unpack(download(Path(temporary)), folder)
    return folder


def download(into: Path) -> Path:
    """The source package, with the hash that the lock file has."""
    wanted = into / "requirements.txt"
    wanted.write_text(locked_lines(LOCK.read_text()))
    options = ("--quiet", "--no-deps", "--no-binary", "kafka-python", "--require-hashes")
    subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, "-r", wanted, "-d", into], check=True
    )
    return next(into.glob("*.tar.gz"))


def unpack(archive: Path, folder: Path) -> None:
    """Only the tests: the client under them is the installed one."""
    with tarfile.open(archive) as source:
        top = source.getnames()[0].split("/")[0]
        members = [one for one in source if one.name.startswith(f"{top}/test/")]
        for member in members:
            member.name = member.name.removeprefix(f"{top}/")
        source.extractall(folder, members, filter="data")
    (folder / "test" / "__init__.py").touch()  # else Python's own package `test` is found first
    (folder / "test" / "service.py").write_text(SERVICE)
    (folder / "pytest.ini").write_text(INI)


def run(folder: Path, bootstrap: str) -> dict[str, Outcome]:
    """Runs the suite against a broker; `module::test` and its outcome."""
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "report.xml"
        environment = {
            **os.environ,
            "KAFKA_URI": f"kafka://{bootstrap}",
            "KAFKA_VERSION": KAFKA_VERSION,
            "KAFKA_ROOT": temporary,  # the suite insists on a folder
        }
        options = (f"--timeout={TEST_SECONDS_MAX}", "-q", "--tb=short", f"--junitxml={report}")
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, "test/integration"],
            cwd=folder,
            env=environment,
            stdout=sys.stderr,
            check=False,
        )
        return read_report(report.read_text())


def read_report(xml: str) -> dict[str, Outcome]:
    """pytest's JUnit report, of which an error is a failure."""
    found = {}
    for case in ElementTree.fromstring(xml).iter("testcase"):
        module = case.attrib["classname"].removeprefix("test.integration.").replace(".", "::")
        found[f"{module}::{case.attrib['name']}"] = _outcome(case)
    return found


def _outcome(case: ElementTree.Element) -> Outcome:
    for tag, kind in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        element = case.find(tag)
        if element is not None:
            return Outcome(kind, f"{element.get('message', '')} {element.text or ''}")
    return Outcome("passed")


# ---- the judgement


def differences(expected: Expected, found: Mapping[str, Outcome]) -> Iterator[str]:
    """One sentence for each test that did not do what it should."""
    if len(found) != expected.total:
        yield f"{len(found)} tests ran, {expected.total} were expected"
    exempt = {test: one for one in expected.exemptions for test in one.tests}
    for test in sorted(exempt.keys() - found.keys()):
        yield f"{test} does not exist"
    for test, outcome in found.items():
        exemption = exempt.get(test)
        should = exemption.outcome if exemption else "passed"
        if outcome.kind != should:
            yield f"{test} {outcome.kind}, expected {should}: {_last_line(outcome.message)}"
        elif exemption and exemption.message not in outcome.message:
            yield f"{test} {should} for another reason: {_last_line(outcome.message)}"


def _last_line(message: str) -> str:
    lines = [line for line in message.splitlines() if line.startswith("E ")] or [message]
    return " ".join(lines[-1].split())[:300]


def page(expected: Expected) -> str:
    """The whole page."""
    counts = " | ".join(str(expected.count(kind)) for kind in ("passed", "failed", "skipped"))
    rows = "".join(
        f"| `{test}` | {one.outcome} | {one.needs}: {one.reason} |\n"
        for one in expected.exemptions
        for test in one.tests
    )
    settings = ", ".join(f"`{one}`" for one in SETTINGS)
    return f"""# Conformance: a suite that was not written here

The integration tests of kafka-python {expected.version}, from its source package, run against one
Chronik node as their external broker (`KAFKA_URI`, `KAFKA_VERSION={KAFKA_VERSION}`). The node has
number 0 and the settings that the suite gives its own Kafka: {settings}.

| tests | passed | failed | skipped |
|---|---|---|---|
| {expected.total} | {counts} |

Every test that is not in this table passes:

| test | outcome | needs |
|---|---|---|
{rows}
`make conformance` fetches the suite into `.peers`, runs it, compares each outcome with
`tests/conformance/expected.toml` (which test, how it ends, what it says) and writes this page.
Then it runs this project's own client tests with the newest librdkafka (the lock file has 2.8).
`.venv/bin/python tools/conformance.py --bootstrap HOST:PORT` shows what any other broker does:
Apache Kafka 4.3.1 with the same settings, `advertised.listeners` and its authorizer passes
{KAFKA_PASSES} and fails or skips the rest for the same reasons.
"""


# ---- the command


@contextmanager
def chronik() -> Iterator[str]:
    """Address of a node on a free port with fresh data."""
    sys.path.insert(0, str(ROOT))
    from tests.servers import Chronik  # noqa: PLC0415 - it needs the path

    with tempfile.TemporaryDirectory(prefix="conformance-") as directory:
        options = [f"--set={one}" for one in SETTINGS]
        node = Chronik(Path(directory), "--node-id", "0", *options)
        node.start()
        try:
            yield node.bootstrap
        finally:
            if node.running():
                node.stop()


def main() -> int:
    """The exit code: 0 where every test did what it should."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bootstrap", help="another broker; the page is left alone")
    bootstrap = parser.parse_args().bootstrap
    expected = read_expected(EXPECTED.read_text())
    folder = fetch(locked_version(LOCK.read_text()))
    if bootstrap:
        found = run(folder, bootstrap)
    else:
        with chronik() as address:
            found = run(folder, address)
    wrong = list(differences(expected, found))
    counts = Counter(outcome.kind for outcome in found.values())
    say = sys.stdout.write
    say(", ".join(f"{counts[kind]} {kind}" for kind in ("passed", "failed", "skipped")) + "\n")
    say("".join(f"differs: {one}\n" for one in wrong))
    if not bootstrap and not wrong:
        PAGE.write_text(page(expected))
        say(f"as expected; {PAGE.relative_to(ROOT)} is up to date\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
