"""The command ``gpuctl import``: turns what other tools are configured with into our node configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from driver.errors import ConfigError
from gpuctl.mig_parted import load_mig_parted
from gpuctl.mig_parted_import import Imported, imported

LOST_EXIT_CODE = 3


@click.group(name="import")
def import_() -> None:
    """Turn the configuration of other tools into node configurations of this driver."""


@import_.command(name="mig-parted")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a file for each configuration into this folder, instead of printing all.",
)
@click.option(
    "--mode",
    type=click.Choice(("layout", "static")),
    default="layout",
    show_default=True,
    help="layout: the driver makes the partitions; static: you go on making them with mig-parted.",
)
def mig_parted(file: Path, to: Path | None, mode: Literal["layout", "static"]) -> None:
    """Turn FILE, a configuration of NVIDIA's mig-parted, into node configurations.

    Each of its named configurations becomes one: printed as YAML documents, or written to FOLDER/NAME.yaml.
    What has no equivalent is said on stderr. Exit codes: 0, 3 when something has no equivalent (what has is
    there), 1 for a file that is wrong or cannot be written, 2 for a wrong command line.
    """
    source = " ".join(str(file).split())  # it stands in comments, which end with the line
    found = [imported(name, entries, mode, source) for name, entries in load_mig_parted(file).items()]
    if to is None:
        click.echo("---\n".join(one.text for one in found), nl=False)
    else:
        _write(found, to)
    for one in found:
        for lost in one.lost:
            click.echo(lost, err=True)
    if any(one.lost for one in found):
        click.get_current_context().exit(LOST_EXIT_CODE)


def _write(found: list[Imported], folder: Path) -> None:
    """Write all files, or none when one is there already."""
    paths = [folder / f"{one.name}.yaml" for one in found]
    there = [str(path) for path in paths if path.exists()]
    if there:
        raise ConfigError(f"{', '.join(there)} is there already", "remove it, or name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for path, one in zip(paths, found, strict=True):
        path.write_text(one.text)
        click.echo(str(path))
