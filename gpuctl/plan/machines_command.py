"""The command ``gpuctl machines``: the machines that can be pretended, and what each of them is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from gpuctl.cli.cluster_options import matching
from gpuctl.cli.output import columns, document, emit, output_option

if TYPE_CHECKING:
    from fakegpu.machine.spec import MachineSpec


def _shipped(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from fakegpu.machine.spec import known_machines

    return [CompletionItem(name) for name in matching(known_machines(), incomplete)]


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME|FILE]...", shell_complete=_shipped)
@output_option("wide", "name")
def machines(names: tuple[str, ...], output: str) -> None:
    """List the machines for --machine of other commands: the built-in ones, or those that are named.

    A machine file of your own is checked as well; docs/fakes-and-machines.md has its fields. Exit codes: 0,
    1 for a machine that does not exist or a file that is wrong, 2 for a wrong command line.
    """
    from fakegpu.machine.spec import known_machines, load_machine

    found = [load_machine(name) for name in names or known_machines()]
    emit(
        output,
        document("MachineList", {"items": [_data(one) for one in found]}),
        lambda: _table(found, wide=output == "wide"),
        lambda: (one.name for one in found),
    )


def _data(machine: MachineSpec) -> dict[str, Any]:
    product = machine.product
    return {
        "name": machine.name,
        "description": machine.description,
        "product": product.name,
        **({"architecture": product.architecture} if product.architecture is not None else {}),
        "gpus": len(machine.slots),
        **({"memoryBytes": product.memory_bytes} if product.memory_bytes is not None else {}),
        "mig": product.mig is not None,
        "migEnabled": [str(slot.pci) for slot in machine.slots if slot.mig_enabled],
        "nvlinks": max(len(slot.links) for slot in machine.slots),
        "virtualization": product.virtualization,
        **({"iommuGroups": _iommu_groups(machine)} if machine.iommu.present else {}),
        "driverVersion": machine.driver_version,
        "cudaDriverVersion": machine.cuda_driver_version,
    }


def _table(machines: Sequence[MachineSpec], *, wide: bool) -> str:
    heads = ("name", "gpus", "product", "memory", "mig", "nvlinks")
    more = ("architecture", "driver", "cuda", "numa-nodes", "iommu-groups") if wide else ()
    rows = [(*_row(one), *(_more(one) if wide else ()), one.description or "-") for one in machines]
    return columns((*heads, *more, "what-it-is"), rows)


def _row(machine: MachineSpec) -> tuple[str, ...]:
    product = machine.product
    memory = "-" if product.memory_bytes is None else f"{product.memory_bytes / 2**30:.0f} GiB"
    enabled = any(slot.mig_enabled for slot in machine.slots)
    mig = "-" if product.mig is None else "on" if enabled else "yes"
    links = max(len(slot.links) for slot in machine.slots)
    return (
        *(machine.name, str(len(machine.slots)), product.name, memory, mig),
        str(links or "-"),
    )


def _more(machine: MachineSpec) -> tuple[str, ...]:
    nodes = {slot.numa_node for slot in machine.slots} - {None}
    return (
        *(machine.product.architecture or "-", machine.driver_version, machine.cuda_driver_version),
        *(str(len(nodes) or "-"), str(_iommu_groups(machine)) if machine.iommu.present else "-"),
    )


def _iommu_groups(machine: MachineSpec) -> int:
    """The number of IOMMU groups that the machine's GPUs are in."""
    from fakegpu.sysfs.functions import functions_of

    known = functions_of(machine)
    return len({known[slot.pci].group for slot in machine.slots})
