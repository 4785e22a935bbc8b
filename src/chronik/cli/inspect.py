"""`chronik inspect`: what is in a file of a data directory, damaged ones included; read only."""

import sys
from pathlib import Path

import click

from chronik.cli._output import json_option, quiet_end


@click.command("inspect")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--records", is_flag=True, help="Decode the records of a segment's batches.")
@json_option
@quiet_end
def command(path: Path, records: bool, as_json: bool) -> None:
    """Show what is in a file of the data.

    PATH is a segment (.log), an index, a checkpoint, a producer snapshot or a partition's folder.

    \b
    chronik inspect chronik-data/topics/orders-0
    chronik inspect chronik-data/topics/orders-0/00000000000000000000.log --records

    Damage is shown in red with its position, and ends the command with 1. With --json a segment
    is one object per line, everything else one object. Nothing is changed; the node may run.
    """
    from chronik.cli import _inspecting as inspecting
    from chronik.storage.checkpoints import CorruptCheckpointError
    from chronik.storage.producer_snapshot import CorruptSnapshotError

    kind = inspecting.kind_of(path)
    if records and kind != "segment":
        raise click.UsageError("--records is for a segment, a .log file of a partition")
    try:
        show = inspecting.show_records if records else inspecting.SHOW[kind]
        whole = show(path, as_json=as_json)
    except CorruptCheckpointError as error:
        raise click.ClickException(f"damaged: {error}") from error
    except CorruptSnapshotError as error:
        raise click.ClickException(f"damaged: {path}: {error}") from error
    except OSError as error:
        raise click.ClickException(f"cannot read {error.filename or path}: {error.strerror}") from (
            error
        )
    if not whole:
        sys.exit(1)
