"""Chronik beside Apache Kafka on this machine: `make bench`.

    compare.py [--rounds 3] [--quick] [--phases s,a,b,c,d,e] [--only chronik|kafka] [--nodes 1|3]

One server runs at a time, so that an idle one does not disturb. In each round every server starts
on empty data, is measured while it starts, and then runs the phases of bench.py; the order of the
servers turns with every round. So they are measured as they are after a start. `--warm-up` gives
each an unmeasured run first, which makes a JVM about twice as fast; `--touch` has the host of a
virtual machine provide the memory that a case needs before the case begins. Kafka has its own
defaults, to which `--durability os` compares; `fsync` shows what "on the disk before acknowledged"
costs. All lines of bench.py go to results/TIME.json, the table of medians to results/TIME.md.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from contestants import BENCH, Chronik, Contestant, Kafka, MissingError
from report import Line, markdown, noise, rows, table
from rich.console import Console

QUICK_SCALE = 0.2
WARM_UP_SCALE = 0.2
TOUCH_MB = {1: 700, 3: 1400}
"""By nodes: the page cache of their logs; more would make the kernel write it to the disk."""
WARM_UP_LATENCY_S, LATENCY_S = 10, 3
"""Seconds before latencies are measured: after a warm-up, and without one."""
CONSOLE = Console(width=None if sys.stdout.isatty() else 120)


def main() -> int:
    options = parse()
    contestants = chosen(options)
    try:
        for each in contestants:
            each.prepare()
    except MissingError as missing:
        CONSOLE.print(f"[red]{missing}[/red]")
        return 2
    lines: list[Line] = []
    for number in range(options.rounds):
        turn = number % len(contestants)
        for each in contestants[turn:] + contestants[:turn]:
            CONSOLE.rule(f"round {number + 1} of {options.rounds}: {each.name}")
            lines += measure(each, options, number)
    report(lines, [each.name for each in contestants], options)
    return 0 if all(line.get("ok", True) for line in lines) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on all counts and times")
    parser.add_argument("--quick", action="store_true", help=f"one round at scale {QUICK_SCALE}")
    parser.add_argument("--phases", default="s,a,b,c,d,e", help="see bench.py --help")
    parser.add_argument("--durability", default="os,fsync", help="of Chronik, comma separated")
    parser.add_argument("--only", choices=("chronik", "kafka"))
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1)
    parser.add_argument(
        "--procs", type=int, default=1, help="client processes; one alone is often the limit"
    )
    parser.add_argument(
        "--reports",
        choices=("errors", "all"),
        default="all",
        help="delivery reports a producer asks for; with all of them its own thread is the limit",
    )
    parser.add_argument("--warm-up", action="store_true", help="an unmeasured run first")
    parser.add_argument("--touch", action="store_true", help="touch memory before each case")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.scale = 1, QUICK_SCALE
    if options.rounds < 1:
        parser.error("--rounds: at least 1")
    return options


def chosen(options: argparse.Namespace) -> list[Contestant]:
    found: list[Contestant] = []
    if options.only != "chronik":
        found.append(Kafka(options.nodes))
    if options.only != "kafka":
        found += [Chronik(one, nodes=options.nodes) for one in options.durability.split(",")]
    return found


def measure(contestant: Contestant, options: argparse.Namespace, number: int) -> list[Line]:
    """The lines of one server in one round."""
    phases = options.phases.split(",")
    with contestant.running() as (bootstrap, pids):
        lines = bench(contestant, bootstrap, pids, ["s"], options) if "s" in phases else []
        rest = [phase for phase in phases if phase != "s"]
        if rest:
            if options.warm_up:
                warm_up(contestant, bootstrap, options)
            lines += bench(contestant, bootstrap, pids, rest, options)
    return [{**line, "round": number + 1} for line in lines]


def warm_up(contestant: Contestant, bootstrap: str, options: argparse.Namespace) -> None:
    """Unmeasured, the same for all."""
    scale = WARM_UP_SCALE * options.scale
    command = command_line(contestant, bootstrap, ["a", "b", "c", "e"], options)
    subprocess.run([*command, "--scale", str(scale)], stdout=subprocess.DEVNULL, check=False)


def bench(
    contestant: Contestant,
    bootstrap: str,
    pids: list[int],
    phases: list[str],
    options: argparse.Namespace,
) -> list[Line]:
    """Runs bench.py and shows its lines as they come."""
    more = ["--scale", str(options.scale), "--pids", ",".join(map(str, pids))]
    command = command_line(contestant, bootstrap, phases, options) + more
    lines: list[Line] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for text in process.stdout:
            lines.append(json.loads(text))
            CONSOLE.print(text.strip(), markup=False, highlight=False, style="dim")
    return lines


def command_line(
    contestant: Contestant, bootstrap: str, phases: list[str], options: argparse.Namespace
) -> list[str]:
    where = ["--name", contestant.name, "--bootstrap", bootstrap]
    warm = WARM_UP_LATENCY_S if options.warm_up else LATENCY_S
    shape = ["--replication", str(contestant.nodes), "--warm", str(warm)]
    shape += ["--procs", str(options.procs), "--reports", options.reports]
    shape += ["--touch", str(TOUCH_MB[contestant.nodes] if options.touch else 0)]
    return [sys.executable, str(BENCH / "bench.py"), *where, *shape, "--phases", ",".join(phases)]


def report(lines: list[Line], names: list[str], options: argparse.Namespace) -> None:
    """The table on the terminal and two files."""
    found = rows(lines)
    title = f"{options.nodes} node(s), {options.rounds} round(s), scale {options.scale}"
    title += f", {options.procs} client process(es), reports of {options.reports}"
    title += ", after a warm-up" if options.warm_up else ", just started"
    title += ", memory touched" if options.touch else ""
    note = noise(lines, names)
    CONSOLE.print(table(found, names, title))
    CONSOLE.print(note)
    stem = BENCH / "results" / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    stem.parent.mkdir(exist_ok=True)
    facts = {"machine": machine(), "options": vars(options), "lines": lines}
    write(stem.with_suffix(".json"), json.dumps(facts, indent=1) + "\n")
    write(stem.with_suffix(".md"), markdown(found, names, f"{title}; {machine()}", note))


def machine() -> str:
    """What the figures depend on most."""
    return f"{os.cpu_count()} CPUs, Linux {platform.release()}, Python {platform.python_version()}"


def write(path: Path, text: str) -> None:
    path.write_text(text)
    CONSOLE.print(f"wrote {path.relative_to(BENCH.parent)}")


if __name__ == "__main__":
    sys.exit(main())
