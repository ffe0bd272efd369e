"""The command ``gpuctl import``: turns configurations of other tools into node configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from driver.errors import ConfigError
from gpuctl.cli.output import exit_amiss, say


@click.group(name="import")
def import_() -> None:
    """Turn the configuration of other tools into node configurations of this driver."""


@import_.command(name="mig-parted", short_help="Import the layouts of NVIDIA's mig-parted.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a file for each configuration into this folder, instead of printing them.",
)
@click.option(
    "--mode",
    type=click.Choice(("layout", "static")),
    default="layout",
    show_default=True,
    help="layout: the driver makes the partitions; static: you keep making them with mig-parted.",
)
def mig_parted(file: Path, to: Path | None, mode: Literal["layout", "static"]) -> None:
    """Turn FILE, a configuration of NVIDIA's mig-parted, into node configurations.

    FILE is such a configuration, or the ConfigMap with one that the MIG manager of the GPU operator is given:
    `kubectl get configmap -n gpu-operator default-mig-parted-config -o yaml`. The ConfigMap may stand among
    other objects, or in the values of the operator's chart. Each of its named configurations becomes a node
    configuration: printed as YAML documents, or written to FOLDER/NAME.yaml. Settings without an equivalent
    are listed on stderr. Exit codes: 0, 3 when there are such settings (the others are imported), 1 for a
    file that is wrong or cannot be written, 2 for a wrong command line.
    """
    from gpuctl.importing.mig_parted import import_mig_parted

    found, lost = import_mig_parted(file, mode)
    if to is None:
        click.echo("---\n".join(one.text for one in found), nl=False)
    else:
        _write({to / f"{one.name}.yaml": one.text for one in found})
    _tell([*lost, *(line for one in found for line in one.lost)])


@import_.command(name="device-plugin", short_help="Import the sharing of NVIDIA's device plugin.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write node-config/NAME.yaml and deviceclasses.yaml into this folder, instead of printing them.",
)
def device_plugin(file: Path, to: Path | None) -> None:
    """Turn FILE, a configuration of NVIDIA's device plugin, into node configurations and DeviceClasses.

    FILE is such a configuration, or a ConfigMap with several, of which nodes choose one by their label
    nvidia.com/device-plugin.config. The ConfigMap may stand among other objects, or in the values of the
    chart of the plugin or of the GPU operator. Each becomes a node configuration, and all together the
    DeviceClasses of the resources that pods ask for. Settings without an equivalent are listed on stderr.
    Exit codes: 0, 3 when there are such settings (the others are imported), 1 for a file that is wrong or
    cannot be written, 2 for a wrong command line.
    """
    from gpuctl.importing.device_plugin import load_device_plugin
    from gpuctl.importing.device_plugin_import import device_classes, imported

    source = " ".join(str(file).split())  # it is written into comments, which end with the line
    configs = load_device_plugin(file)
    found = [imported(name, config, source) for name, config in configs.items()]
    classes = device_classes(found, mixed=any(one.mig_strategy == "mixed" for one in configs.values()))
    if to is None:
        click.echo("---\n".join([*(one.text for one in found), classes]), nl=False)
    else:
        files = {to / "node-config" / f"{one.name}.yaml": one.text for one in found}
        _write({**files, to / "deviceclasses.yaml": classes})
    _tell([lost for one in found for lost in one.lost])


def _tell(lost: list[str]) -> None:
    """Say what has no equivalent; if there is anything, end with exit code 3."""
    for one in lost:
        say(one, err=True)
    if lost:
        exit_amiss()


def _write(files: dict[Path, str]) -> None:
    """Write all files, or none if one of them exists already."""
    # Checked for all files first, so that nothing is half written over another configuration.
    there = [str(path) for path in files if path.exists()]
    if there:
        raise ConfigError(f"{', '.join(there)} already exists", "remove it, or name another folder")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        say(str(path))
