"""Finds the fabric partition of a claim's GPUs, or says why there is none: pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from driver.errors import ClaimBlocked, ClaimRefused
from driver.fabric.api import FabricPartition
from driver.nvml.pci_address import PciAddress


class PartitionTaken(ClaimBlocked):
    """Another partition that shares a GPU with the claim's is active."""


def partition_of(
    claim: str,
    gpus: Collection[PciAddress],
    numbers: Mapping[PciAddress, int],
    partitions: Sequence[FabricPartition],
) -> FabricPartition:
    """The partition that has exactly the claim's GPUs.

    ``numbers`` are the fabric manager's numbers of the node's GPUs. If there is no such partition,
    ClaimRefused is raised with the constraint that the claim needs.
    """
    unknown = sorted(set(gpus) - numbers.keys())
    if unknown:
        raise ClaimRefused(
            f"{claim} was given GPU {unknown[0]}, but the fabric manager has no partition with it, or does "
            "not report its module",
            "check that the fabric manager was started with this GPU, and that the GPU is bound to the "
            "NVIDIA driver",
        )
    wanted = frozenset(numbers[pci] for pci in gpus)
    for partition in partitions:
        if partition.physical_ids == wanted:
            return partition
    raise ClaimRefused(*_why_none(claim, wanted, partitions))


def _why_none(
    claim: str,
    wanted: frozenset[int],
    partitions: Sequence[FabricPartition],
) -> tuple[str, str]:
    """What is wrong with the claim's set of GPUs, and the way out."""
    # The smallest partition that has all of them and more.
    around = min(
        (one for one in partitions if wanted < one.physical_ids), key=lambda one: len(one.gpus), default=None
    )
    sizes = sorted({len(one.gpus) for one in partitions})
    has = f"{claim} was given the GPUs of modules {', '.join(map(str, sorted(wanted)))}"
    if len(wanted) in sizes:
        way_out = f"add the constraint {_constraint(len(wanted))} to the claim"
    elif around is not None:
        way_out = f"ask for {len(around.gpus)} GPUs with the constraint {_constraint(len(around.gpus))}"
    else:
        way_out = (
            f"ask for {' or '.join(map(str, sizes))} GPUs, with a constraint such as {_constraint(sizes[-1])}"
        )
    if around is not None:
        return f"{has}, which are a part of {around}: claims cannot share a partition", way_out
    return f"{has}, which do not form a fabric partition", way_out


def refuse_taken(
    wanted: FabricPartition, partitions: Sequence[FabricPartition], ours: Collection[int]
) -> None:
    """Raise PartitionTaken if another partition that shares a GPU with the wanted one is active.

    ``ours`` are the partitions that were activated for claims of this node.
    """
    for other in partitions:
        if other.number == wanted.number or not other.active:
            continue
        if not other.physical_ids.isdisjoint(wanted.physical_ids):
            if other.number in ours:
                raise PartitionTaken(
                    f"{other} is still active for another claim and shares GPUs with {wanted}",
                    "it is deactivated when that claim's pod has ended",
                )
            raise PartitionTaken(
                f"{other} is active without a claim on this node, and shares GPUs with {wanted}",
                f"deactivate it where it was activated (fmpm -d {other.number})",
            )


def _constraint(size: int) -> str:
    return f"matchAttribute: gpu.nvidia.com/partition{size}"
