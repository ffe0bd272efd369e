"""The command ``gpuctl mig plan``: which layouts of MIG partitions fit the GPUs of a machine, drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from driver.errors import ConfigError
from gpuctl.cli.output import document, emit, output_option
from gpuctl.plan.machine_options import config_options, machine_option

if TYPE_CHECKING:
    from driver.hardware.gpu import Gpu, Inventory


@click.group()
def mig() -> None:
    """Show which MIG partitions fit on GPUs."""


@mig.command(short_help="Draw which layouts of partitions fit the GPUs of a machine.")
@machine_option(required=True)
@config_options("A node configuration: shows how it offers each GPU.")
@click.option("--gpu", "addresses", multiple=True, metavar="ADDRESS", help="Only the GPU at a PCI address.")
@click.option("--layout", help="A layout such as all-balanced or all-1g.10gb, or profiles: 1g,1g,2g,3g.")
@output_option()
def plan(
    machine: str,
    config: Path | None,
    node_labels: dict[str, str] | None,
    addresses: tuple[str, ...],
    layout: str | None,
    output: str,
) -> None:
    """Draw which layouts of partitions fit the GPUs of a machine. Needs no cluster and no GPU.

    Partitions lie in memory slices: each box covers those that a partition takes. By default it draws the
    profiles and all named layouts; with --layout, whether this one fits and where its partitions lie, or why
    not and the nearest one that does; with --config, how a node configuration offers the GPUs.

    Exit codes: 0, 3 when the layout does not fit on a GPU, 1 for a machine, GPU or configuration that cannot
    be used, 2 for a wrong command line.
    """
    from driver.policy.config import load_config
    from gpuctl.plan.partition_bars import mig_picture
    from gpuctl.plan.partitions import mig_kinds, read_layout
    from gpuctl.plan.planned import plan_node

    inventory = plan_node(machine, "node", None).inventory
    gpus = _chosen(inventory, addresses, machine)
    wanted = None if layout is None else read_layout(layout)
    kinds = mig_kinds(inventory, gpus, wanted, load_config(config, node_labels) if config else None)
    data = document("MigPlan", {"machine": machine, "gpuKinds": [kind.as_data() for kind in kinds]})
    emit(output, data, lambda: mig_picture(kinds, layout))
    if any(kind.asked is not None and kind.asked.problem for kind in kinds):
        click.get_current_context().exit(3)


def _chosen(inventory: Inventory, addresses: tuple[str, ...], machine: str) -> list[Gpu]:
    from gpuctl.plan.partitions import gpu_addresses

    if not addresses:
        return list(inventory.gpus)
    by_address = {gpu.pci: gpu for gpu in inventory.gpus}
    wanted = gpu_addresses(addresses)
    missing = next((text for pci, text in wanted.items() if pci not in by_address), None)
    if missing is not None:
        there = ", ".join(map(str, by_address))
        raise ConfigError(f"{machine} has no GPU at {missing}", f"there are {there}")
    return [by_address[pci] for pci in wanted]
