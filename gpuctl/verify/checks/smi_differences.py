"""Compares what NVML answers with what nvidia-smi prints: values without any I/O.

Every value that both have is compared. Those that only one of them has are no difference, since each NVIDIA
driver prints some more and some fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from driver.hardware.gpu import Gpu, Inventory, Partition
from driver.nvml.api import FabricInfo, Virtualization
from driver.nvml.health.calls import EccErrors
from driver.nvml.modes import ComputeMode
from driver.nvml.pci_address import PciAddress
from gpuctl.verify.checks.smi_xml import SmiElement, SmiGpu, SmiList, SmiLog, plain

_MIB = 1 << 20

# The words of nvidia-smi for a value that NVML's own words call differently, all as ``plain`` has them.
_SAME: dict[str, str] = {
    "reboot": "nodereboot",
    "gpureset": "reset",
    "nvidiavirtualapplications": "nvidiavapps",
    "nvidiavirtualpc": "nvidiavpc",
    "nvidiavirtualcomputeserver": "nvidiavcs",
    "nvidiartxvirtualworkstation": "nvidiavws",
    "nvidiavgaming": "nvidiacloudgaming",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What NVML answers about a GPU and the inventory does not keep; None for a missing answer."""

    compute_mode: ComputeMode | None = None
    persistence_mode: bool | None = None
    virtualization: Virtualization | None = None
    fabric: FabricInfo | None = None
    ecc: EccErrors | None = None


NOT_ASKED = Asked()


@dataclass(frozen=True, slots=True)
class Known:
    """All that NVML says about a GPU."""

    gpu: Gpu
    asked: Asked = NOT_ASKED


@dataclass(slots=True)
class Comparison:
    """What was compared: the differences, a line for each, and how many values are the same.

    ``only_nvml`` and ``only_smi`` are the names of values that only one of both has, for some GPU.
    """

    differences: list[str] = field(default_factory=list)
    same: int = 0
    only_nvml: set[str] = field(default_factory=set)
    only_smi: set[str] = field(default_factory=set)

    def values(
        self, subject: str, name: str, ours: str | None, theirs: str | None, *, is_same: bool | None = None
    ) -> None:
        """Compare one value of a subject; without ``is_same`` the words decide."""
        if ours is None or theirs is None:
            if ours is not None:
                self.only_nvml.add(name)
            if theirs is not None:
                self.only_smi.add(name)
            return
        if is_same is None:
            is_same = _word(ours) == _word(theirs)
        if is_same:
            self.same += 1
        else:
            self.differences.append(f"{subject}: {name}: NVML {ours}, nvidia-smi {theirs}")


def compare(inventory: Inventory, asked: dict[PciAddress, Asked], log: SmiLog) -> Comparison:
    """Compare everything that both say about the node, its GPUs and their MIG devices."""
    found = Comparison()
    node, count = log.element, len(inventory.gpus)
    found.values("node", "driver version", inventory.driver_version, node.get("driver_version"))
    found.values("node", "CUDA version", inventory.cuda_driver_version, node.get("cuda_version"))
    found.values("node", "number of GPUs", str(count), node.get("attached_gpus") or str(len(log.gpus)))
    theirs = {one.pci: one for one in log.gpus}
    for gpu in inventory.gpus:
        if gpu.pci in theirs:
            known = Known(gpu, asked.get(gpu.pci, NOT_ASKED))
            _compare_gpu(found, known, theirs[gpu.pci])
        else:
            found.differences.append(f"GPU {gpu.pci}: only NVML lists it")
    ours = {gpu.pci for gpu in inventory.gpus}
    found.differences += [f"GPU {pci}: only nvidia-smi lists it" for pci in theirs if pci not in ours]
    return found


def compare_list(found: Comparison, inventory: Inventory, listed: SmiList) -> None:
    """Compare names by UUID, which the XML log has not for MIG devices."""
    for gpu in inventory.gpus:
        _compare_name(found, f"GPU {gpu.pci}", gpu.uuid, gpu.product_name, listed.gpus)
        for one in gpu.mig.partitions if gpu.mig else ():
            _compare_name(found, _mig_subject(gpu, *_ids(one)), one.uuid, one.profile, listed.migs)
    ours = {one.uuid for gpu in inventory.gpus for one in (gpu.mig.partitions if gpu.mig else ())}
    found.differences += [
        f"MIG device {uuid} ({profile}): only nvidia-smi -L lists it"
        for uuid, profile in listed.migs.items()
        if uuid not in ours
    ]


def _compare_name(
    found: Comparison, subject: str, uuid: str, name: str | None, names: Mapping[str, str]
) -> None:
    if uuid not in names:
        found.differences.append(f"{subject}: nvidia-smi -L lists no {uuid}")
        return
    # Profiles such as 1g.10gb+me and 1g.10gb-me differ only in punctuation.
    found.values(subject, "name in nvidia-smi -L", name, names[uuid], is_same=name == names[uuid])


def _compare_gpu(found: Comparison, known: Known, smi: SmiGpu) -> None:
    subject = f"GPU {known.gpu.pci}"
    for name, paths, ours in _VALUES:
        found.values(subject, name, ours(known), smi.element.get(*paths))
    _compare_memory(found, subject, known.gpu.memory_bytes, smi.element)
    found.values(subject, "recovery action", known.gpu.condition.recovery_action, _recovery(smi.element))
    for name, count, theirs in _ecc_counts(known.asked.ecc, smi.element):
        found.values(subject, name, count, theirs)
    held = known.gpu.vgpu_license
    if held is not None:
        status = smi.element.get("vgpu_software_licensed_product/license_status")
        # Behind the word is until when: Licensed (Expiry: 2026-7-7 16:1:44 GMT).
        found.values(
            subject,
            "vGPU license",
            "Licensed" if held.licensed else "Unlicensed",
            None if status is None else status.partition("(")[0].strip(),
        )
    _compare_migs(found, known.gpu, smi.migs)


def _compare_memory(found: Comparison, subject: str, ours: int | None, element: SmiElement) -> None:
    """Compare the memory; nvidia-smi prints whole MiB, so less than one of them is no difference."""
    theirs = element.get("fb_memory_usage/total")
    number = None if theirs is None else theirs.partition(" ")[0]
    close = (
        ours is not None
        and number is not None
        and number.isdecimal()
        and abs(ours - int(number) * _MIB) < _MIB
    )
    text = None if ours is None else f"{ours / _MIB:g} MiB"
    found.values(subject, "memory", text, theirs, is_same=close)


def _compare_migs(found: Comparison, gpu: Gpu, migs: tuple[SmiElement, ...] | None) -> None:
    """Compare the MIG devices by their ids. The log of a driver without MIG says nothing about them."""
    ours = {_ids(one): one for one in (gpu.mig.partitions if gpu.mig else ())}
    if migs is None:
        if ours:
            found.only_nvml.add("MIG devices")
        return
    theirs = {(one.get("gpu_instance_id"), one.get("compute_instance_id")): one for one in migs}
    for ids, one in ours.items():
        if ids not in theirs:
            found.differences.append(f"{_mig_subject(gpu, *ids)}: only NVML lists it")
            continue
        element = theirs[ids]
        subject = _mig_subject(gpu, *ids)
        _compare_memory(found, subject, one.memory_bytes, element)
        # Only nvidia-smi -L is known to print it: see compare_list.
        if element.get("uuid") is not None:
            found.values(subject, "UUID", one.uuid, element.get("uuid"))
        for name, paths, value in _MIG_VALUES:
            found.values(subject, name, value(one), element.get(*paths))
    # A guest with a vGPU may not use MIG, and the inventory has none then.
    if gpu.mig is not None:
        found.differences += [
            f"{_mig_subject(gpu, *ids)}: only nvidia-smi lists it" for ids in theirs if ids not in ours
        ]


def _mig_subject(gpu: Gpu, gpu_instance: str | None, compute_instance: str | None) -> str:
    return f"GPU {gpu.pci}, GPU instance {gpu_instance}, compute instance {compute_instance}"


def _ids(one: Partition) -> tuple[str, str]:
    return str(one.gpu_instance.id), str(one.compute_instance.id)


def _word(words: str) -> str:
    word = plain(words)
    return _SAME.get(word, word)


def _on(value: bool | None) -> str | None:
    return None if value is None else ("Disabled", "Enabled")[value]


def _yes(value: bool | None) -> str | None:
    return None if value is None else ("No", "Yes")[value]


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def _mode_now(known: Known) -> str | None:
    # The inventory says of a GPU without MIG that it is off, where nvidia-smi says N/A.
    return _on(known.gpu.mig_enabled) if known.gpu.mig_capable else None


def _recovery(element: SmiElement) -> str | None:
    """What makes the GPU healthy again; drivers before 570 print two answers in place of one word."""
    action = element.get("gpu_recovery_action")
    reset, drain = (
        element.get(f"gpu_reset_status/{name}") for name in ("reset_required", "drain_and_reset_recommended")
    )
    if action is not None or reset is None or drain is None:
        return action
    return "reset" if plain(reset) == "yes" else "drain-and-reset" if plain(drain) == "yes" else "none"


def _ecc_counts(ours: EccErrors | None, element: SmiElement) -> Iterator[tuple[str, str | None, str | None]]:
    """The counters since the driver was loaded: name, NVML's, nvidia-smi's.

    NVML adds up what nvidia-smi prints for each kind of memory. Before Ampere it prints totals, too.
    """
    for kind, total, sram in (
        ("corrected", "single_bit/total", ("sram_correctable",)),
        (
            "uncorrected",
            "double_bit/total",
            ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded"),
        ),
    ):
        dram = f"dram_{sram[0].removeprefix('sram_')}"
        counts = [_count(element, name) for name in (dram, *sram)]
        known = [count for count in counts if count is not None]
        theirs = element.get(f"ecc_errors/volatile/{total}")
        # One kind of memory alone would be no sum.
        if theirs is None and counts[0] is not None and len(known) > 1:
            theirs = str(sum(known))
        yield f"ECC errors {kind}", None if ours is None else str(getattr(ours, kind)), theirs


def _count(element: SmiElement, name: str) -> int | None:
    text = element.get(f"ecc_errors/volatile/{name}")
    return int(text) if text is not None and text.isdecimal() else None


def _long(pci: PciAddress) -> str:
    return f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.{pci.function:X}"


def _fabric(known: Known, value: Callable[[FabricInfo], str]) -> str | None:
    return None if known.asked.fabric is None else value(known.asked.fabric)


def _fabric_health(known: Known) -> str | None:
    health = known.gpu.condition.fabric
    return None if health is None else health.summary


def _rows(known: Known, name: str) -> str | None:
    rows = known.gpu.condition.rows
    if rows is None:
        return None
    value: int | bool = getattr(rows, name)
    return _yes(value) if isinstance(value, bool) else str(value)


_Value = tuple[str, tuple[str, ...], Callable[[Known], str | None]]

_VALUES: tuple[_Value, ...] = (
    ("UUID", ("uuid",), lambda known: known.gpu.uuid),
    ("PCI address", ("pci/pci_bus_id",), lambda known: _long(known.gpu.pci)),
    ("minor number", ("minor_number",), lambda known: str(known.gpu.minor)),
    ("name", ("product_name",), lambda known: known.gpu.product_name),
    ("brand", ("product_brand",), lambda known: known.gpu.brand),
    ("architecture", ("product_architecture",), lambda known: known.gpu.architecture),
    ("addressing mode", ("addressing_mode",), lambda known: known.gpu.addressing_mode),
    ("module id", ("gpu_module_id",), lambda known: _number(known.gpu.module_id)),
    ("persistence mode", ("persistence_mode",), lambda known: _on(known.asked.persistence_mode)),
    ("compute mode", ("compute_mode",), lambda known: known.asked.compute_mode),
    (
        "virtualization mode",
        ("gpu_virtualization_mode/virtualization_mode",),
        lambda known: known.asked.virtualization,
    ),
    ("MIG mode", ("mig_mode/current_mig",), _mode_now),
    (
        "pending MIG mode",
        ("mig_mode/pending_mig",),
        lambda known: _on(known.gpu.mig.pending) if known.gpu.mig else None,
    ),
    (
        "retired page pending",
        ("retired_pages/pending_retirement", "retired_pages/pending_blacklist"),
        lambda known: _yes(known.gpu.condition.page_pending),
    ),
    *(
        (f"remapped rows {name}", (f"remapped_rows/remapped_row_{element}",), value)
        for name, element, value in (
            ("corrected", "corr", lambda known: _rows(known, "corrected")),
            ("uncorrected", "unc", lambda known: _rows(known, "uncorrected")),
            ("pending", "pending", lambda known: _rows(known, "pending")),
            ("failed", "failure", lambda known: _rows(known, "failed")),
        )
    ),
    ("fabric state", ("fabric/state",), lambda known: _fabric(known, lambda one: one.state)),
    ("fabric cluster", ("fabric/clusterUuid",), lambda known: _fabric(known, lambda one: one.cluster_uuid)),
    ("fabric clique", ("fabric/cliqueId",), lambda known: _fabric(known, lambda one: str(one.clique))),
    ("fabric health", ("fabric/health/summary",), _fabric_health),
    (
        "vGPU license's product",
        ("vgpu_software_licensed_product/licensed_product_name",),
        lambda known: None if known.gpu.vgpu_license is None else known.gpu.vgpu_license.product,
    ),
)
"""Name, paths in the log, and what NVML says."""

_IN_MIG = "device_attributes/shared"
_MIG_VALUES: tuple[tuple[str, tuple[str, ...], Callable[[Partition], str]], ...] = (
    ("multiprocessors", (f"{_IN_MIG}/multiprocessor_count",), lambda one: str(one.multiprocessors)),
    ("copy engines", (f"{_IN_MIG}/copy_engine_count",), lambda one: str(one.engines.copy)),
    ("encoders", (f"{_IN_MIG}/encoder_count",), lambda one: str(one.engines.encoders)),
    ("decoders", (f"{_IN_MIG}/decoder_count",), lambda one: str(one.engines.decoders)),
    ("OFA engines", (f"{_IN_MIG}/ofa_count",), lambda one: str(one.engines.ofa)),
    ("JPEG engines", (f"{_IN_MIG}/jpg_count",), lambda one: str(one.engines.jpeg)),
)
