"""Compares what this driver read from NVML with what nvidia-smi prints: values without any I/O.

Every value that both have is compared. Those that only one of them has are no difference, since each NVIDIA
driver prints some more and some fewer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from driver.hardware.gpu import Gpu, Inventory, Partition
from tools.hardware.smi_xml import SmiElement, SmiLog, plain

T = TypeVar("T")

_MIB = 1 << 20
# The words of nvidia-smi for a value that NVML's own words call differently, all as ``plain`` has them.
_SAME = {
    "reboot": "nodereboot",
    "gpureset": "reset",
    "nvidiavirtualapplications": "nvidiavapps",
    "nvidiavirtualpc": "nvidiavpc",
    "nvidiavirtualcomputeserver": "nvidiavcs",
    "nvidiartxvirtualworkstation": "nvidiavws",
    "nvidiavgaming": "nvidiacloudgaming",
}
_ROWS = {"corrected": "corr", "uncorrected": "unc", "pending": "pending", "failed": "failure"}
_SHARED = {
    "multiprocessors": "multiprocessor",
    "copy engines": "copy_engine",
    "encoders": "encoder",
    "decoders": "decoder",
    "OFA engines": "ofa",
    "JPEG engines": "jpg",
}


@dataclass(slots=True)
class Comparison:
    """What was compared: the differences, a line for each, and how many values are the same.

    ``only_nvml`` and ``only_smi`` are the names of values that only one of both has, for some GPU.
    """

    differences: list[str] = field(default_factory=list)
    same: int = 0
    only_nvml: set[str] = field(default_factory=set)
    only_smi: set[str] = field(default_factory=set)

    def values(self, subject: str, values: Iterable[tuple[str, Any, str | None]]) -> None:
        """Compare values of a subject: name, NVML's, nvidia-smi's; a memory is a number of bytes."""
        for name, ours, theirs in values:
            if ours is None or theirs is None:
                one_sided = self.only_smi if ours is None else self.only_nvml
                if ours is not theirs:
                    one_sided.add(name)
            elif _is_same(ours, theirs):
                self.same += 1
            else:
                shown = f"{ours / _MIB:g} MiB" if name == "memory" else _words(ours)
                self.differences.append(f"{subject}: {name}: NVML {shown}, nvidia-smi {theirs}")

    def listed(
        self, ours: dict[str, T], theirs: dict[str, SmiElement]
    ) -> Iterable[tuple[str, T, SmiElement]]:
        """What both list; what one of both alone lists is a difference."""
        self.differences += [f"{one}: only NVML lists it" for one in ours.keys() - theirs.keys()]
        self.differences += [f"{one}: only nvidia-smi lists it" for one in theirs.keys() - ours.keys()]
        return ((subject, one, theirs[subject]) for subject, one in ours.items() if subject in theirs)


def compare(inventory: Inventory, log: SmiLog) -> Comparison:
    """Compare everything that both say about the node, its GPUs and their MIG devices."""
    found, node = Comparison(), log.element
    found.values(
        "node",
        (
            ("driver version", inventory.driver_version, node.get("driver_version")),
            ("CUDA version", inventory.cuda_driver_version, node.get("cuda_version")),
        ),
    )
    ours = {f"GPU {gpu.pci}": gpu for gpu in inventory.gpus}
    migs = {f"GPU {one.pci}": one.migs for one in log.gpus}
    for subject, gpu, element in found.listed(ours, {f"GPU {one.pci}": one.element for one in log.gpus}):
        found.values(subject, _gpu_values(gpu, element))
        inside = migs[subject]
        # The log of a driver without MIG says nothing about it, and a guest with a vGPU may not use it.
        if gpu.mig is None or inside is None:
            continue
        partitions = {f"{subject}, {_ids(one)}": one for one in gpu.mig.partitions}
        elements = {f"{subject}, {_printed_ids(one)}": one for one in inside}
        for place, partition, printed in found.listed(partitions, elements):
            found.values(place, _partition_values(partition, printed))
    return found


def _gpu_values(gpu: Gpu, element: SmiElement) -> Iterable[tuple[str, Any, str | None]]:
    mode, condition = gpu.mig, gpu.condition
    for name, ours, path in (
        ("UUID", gpu.uuid, "uuid"),
        ("minor number", gpu.minor, "minor_number"),
        ("name", gpu.product_name, "product_name"),
        ("brand", gpu.brand, "product_brand"),
        ("architecture", gpu.architecture, "product_architecture"),
        ("addressing mode", gpu.addressing_mode, "addressing_mode"),
        ("module id", gpu.module_id, "gpu_module_id"),
        # The inventory says of a GPU without MIG that it is off, where nvidia-smi says N/A.
        ("MIG mode", _on(gpu.mig_enabled if gpu.mig_capable else None), "mig_mode/current_mig"),
        ("pending MIG mode", _on(mode.pending if mode else None), "mig_mode/pending_mig"),
        ("memory", gpu.memory_bytes, "fb_memory_usage/total"),
        ("recovery action", condition.recovery_action, "gpu_recovery_action"),
        ("retired page pending", condition.page_pending, "retired_pages/pending_retirement"),
        ("fabric health", condition.fabric and condition.fabric.summary, "fabric/health/summary"),
    ):
        yield name, ours, element.get(path)
    for name, path in _ROWS.items():
        ours = None if condition.rows is None else getattr(condition.rows, name)
        yield f"remapped rows {name}", ours, element.get(f"remapped_rows/remapped_row_{path}")


def _partition_values(one: Partition, element: SmiElement) -> Iterable[tuple[str, Any, str | None]]:
    engines = one.engines
    counts = (
        *(one.multiprocessors, engines.copy, engines.encoders, engines.decoders, engines.ofa, engines.jpeg),
    )
    for (name, path), count in zip(_SHARED.items(), counts, strict=True):
        yield name, count, element.get(f"device_attributes/shared/{path}_count")
    yield "memory", one.memory_bytes, element.get("fb_memory_usage/total")


def _ids(one: Partition) -> str:
    return f"GPU instance {one.gpu_instance.id}, compute instance {one.compute_instance.id}"


def _printed_ids(one: SmiElement) -> str:
    return f"GPU instance {one.get('gpu_instance_id')}, compute instance {one.get('compute_instance_id')}"


def _is_same(ours: Any, theirs: str) -> bool:
    number, _, unit = theirs.partition(" ")
    # It prints whole MiB, so less than one of them is no difference.
    if unit == "MiB" and number.isdecimal():
        return abs(int(ours) - int(number) * _MIB) < _MIB
    word = plain(_words(ours))
    return plain(theirs) in (word, _SAME.get(word, word)) or _SAME.get(plain(theirs)) == word


def _words(ours: Any) -> str:
    return ("No", "Yes")[ours] if isinstance(ours, bool) else str(ours)


def _on(value: bool | None) -> str | None:
    return None if value is None else ("Disabled", "Enabled")[value]
