"""The commands a person types: one command is one file, validated before anything opens."""

import importlib

import click

_COMMANDS = {
    "topic": "chronik.cli.topic",
    "inspect": "chronik.cli.inspect",
    "lab": "chronik.cli.lab",
    "produce": "chronik.cli.produce",
    "consume": "chronik.cli.consume",
    "cluster": "chronik.cli.cluster",
    "config": "chronik.cli.config",
    "group": "chronik.cli.group",
    "audit": "chronik.cli.audit",
    "demo": "chronik.cli.demo",
    "diagnose": "chronik.cli.diagnose",
    "node": "chronik.cli.node",
    "simulate": "chronik.cli.simulate",
    "verify": "chronik.cli.verify",
    "up": "chronik.cli.up",
    "pipeline": "chronik.cli.pipeline",
    "sql": "chronik.cli.sql",
}
"""Name to module; a module is loaded only when its command is used, so that `up` starts at once."""


class _Lazy(click.Group):
    """A group whose commands live in modules of their own, each with an attribute `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command there is."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Loads one."""
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        command: click.Command = importlib.import_module(module).command
        return command


@click.group(
    cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="chronik", message="chronik %(version)s")
def main() -> None:
    """Chronik: a Kafka-compatible log that can prove what it delivered."""
