"""``nvidia-smi -q -x`` of a fake machine, from its state alone: faults of its NVML do not change it.

Names, order and words of the elements are those of drivers 535 to 590 (nvsmi_device_v12.dtd and v13). Only
elements for which a fake GPU has a value are here, and those that say of it that it has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from xml.sax.saxutils import escape

from driver.nvml.api import Virtualization
from driver.nvml.health.calls import RecoveryAction
from driver.nvml.mig import MigDevice
from driver.nvml.pci_address import PciAddress
from fakegpu.health.calls import RETIRES_PAGES, knows_recovery_action, release
from fakegpu.machine.mig_state import mig_devices
from fakegpu.machine.spec import MachineSpec, Slot
from fakegpu.machine.state import GpuState, MachineState
from fakegpu.smi.query import bus_id

_NOT_AVAILABLE = "N/A"
_DEPRECATED = "Requested functionality has been deprecated"
_FIRST_WITH_SCHEMA_13 = 590
_MIB = 1 << 20

Element = tuple[str, "str | list[Element]"]
"""An element: its name, and its text or the elements in it."""

_BRANDS = {
    "Nvidia": "NVIDIA",
    "NvidiaRTX": "NVIDIA RTX",
    "NvidiaVApps": "NVIDIA Virtual Applications",
    "NvidiaVPC": "NVIDIA Virtual PC",
    "NvidiaVCS": "NVIDIA Virtual Compute Server",
    "NvidiaVWS": "NVIDIA RTX Virtual Workstation",
    "NvidiaCloudGaming": "NVIDIA Cloud Gaming",
    "QuadroRTX": "Quadro RTX",
    "GeForceRTX": "GeForce RTX",
    "TitanRTX": "Titan RTX",
}
_COMPUTE_MODES = {
    "default": "Default",
    "prohibited": "Prohibited",
    "exclusive-process": "Exclusive_Process",
}
_VIRTUALIZATION: dict[Virtualization, str] = {
    "none": "None",
    "passthrough": "Pass-Through",
    "vgpu": "VGPU",
    "host-vgpu": "Host VGPU",
    "host-vsga": "Host VSGA",
}
# The words for the last three were not found in any output of the real program.
_RECOVERY_ACTIONS: dict[RecoveryAction, str] = {
    "none": "None",
    "reset": "Reset",
    "node-reboot": "Reboot",
    "drain-p2p": "Drain P2P",
    "drain-and-reset": "Drain and Reset",
    "recover-imex": "Recover IMEX",
    "bus-reset": "Bus Reset",
    "system-reboot": "System Reboot",
}
_FABRIC_STATES = {
    "not-supported": "N/A",
    "not-started": "Not Started",
    "in-progress": "In Progress",
    "completed": "Completed",
}


def log_lines(
    spec: MachineSpec, state: MachineState, gpus: Iterable[tuple[PciAddress, tuple[MigDevice, ...]]]
) -> Iterator[str]:
    """The lines of the log about these GPUs, each with the MIG devices that are seen."""
    version = 13 if release(state.driver_version) >= _FIRST_WITH_SCHEMA_13 else 12
    yield '<?xml version="1.0" ?>'
    yield f'<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v{version}.dtd">'
    yield "<nvidia_smi_log>"
    shown = [(pci, _gpu(spec, state, pci, migs)) for pci, migs in gpus]
    head: list[Element] = [
        ("timestamp", datetime.now().astimezone().strftime("%a %b %e %H:%M:%S %Y")),
        ("driver_version", state.driver_version),
        ("cuda_version", state.cuda_driver_version),
        ("attached_gpus", str(len(shown))),
    ]
    yield from _lines(head, "\t")
    for pci, elements in shown:
        yield f'\t<gpu id="{bus_id(pci)}">'
        yield from _lines(elements, "\t\t")
        yield "\t</gpu>"
    yield "</nvidia_smi_log>"


def all_mig_devices(spec: MachineSpec, state: MachineState, pci: PciAddress) -> tuple[MigDevice, ...]:
    """The MIG devices of a GPU, in the order of NVML's indexes."""
    gpu = state.gpus[pci]
    if spec.product.mig is None:
        return ()
    return mig_devices(spec.product.mig, gpu.mig, spec.board_uuid(pci, gpu.board))


def _lines(elements: Iterable[Element], indent: str) -> Iterator[str]:
    for name, content in elements:
        if isinstance(content, str):
            yield f"{indent}<{name}>{escape(content)}</{name}>"
        else:
            yield f"{indent}<{name}>"
            yield from _lines(content, f"{indent}\t")
            yield f"{indent}</{name}>"


def _gpu(
    spec: MachineSpec, state: MachineState, pci: PciAddress, migs: tuple[MigDevice, ...]
) -> list[Element]:
    """All elements about one GPU, in the order of the real log."""
    gpu, product = state.gpus[pci], spec.product
    return [
        ("product_name", product.name),
        ("product_brand", _or_not_available(_BRANDS.get(product.brand or "", product.brand))),
        ("product_architecture", _or_not_available(product.architecture)),
        ("persistence_mode", _mode(gpu.persistence)),
        ("addressing_mode", _or_not_available(product.addressing_mode)),
        *_mig(spec, gpu, migs),
        ("uuid", spec.board_uuid(pci, gpu.board)),
        ("minor_number", str(gpu.minor)),
        ("gpu_module_id", _or_not_available(spec.slot(pci).module_id)),
        ("gpu_virtualization_mode", [("virtualization_mode", _VIRTUALIZATION[product.virtualization])]),
        *_license(spec, gpu),
        *_recovery(spec, state, gpu),
        ("pci", _pci(spec.slot(pci), product.device_id)),
        ("fb_memory_usage", _memory(spec)),
        ("compute_mode", _COMPUTE_MODES[gpu.compute_mode]),
        *_memory_health(spec, gpu),
        _fabric(spec, state, gpu),
        ("processes", []),
    ]


def _mode(on: bool) -> str:
    return "Enabled" if on else "Disabled"


def _or_not_available(value: str | int | None) -> str:
    return _NOT_AVAILABLE if value is None else str(value)


def _mig(spec: MachineSpec, gpu: GpuState, migs: tuple[MigDevice, ...]) -> Iterator[Element]:
    capable = spec.product.mig is not None
    current, pending = (_mode(on) if capable else _NOT_AVAILABLE for on in (gpu.mig.enabled, gpu.mig.pending))
    yield "mig_mode", [("current_mig", current), ("pending_mig", pending)]
    shown: list[Element] = [("mig_device", _mig_device(index, mig)) for index, mig in enumerate(migs)]
    yield "mig_devices", shown or "None"


def _mig_device(index: int, mig: MigDevice) -> list[Element]:
    engines = mig.engines
    shared: list[Element] = [
        ("multiprocessor_count", str(mig.multiprocessors)),
        ("copy_engine_count", str(engines.copy)),
        ("encoder_count", str(engines.encoders)),
        ("decoder_count", str(engines.decoders)),
        ("ofa_count", str(engines.ofa)),
        ("jpg_count", str(engines.jpeg)),
    ]
    return [
        ("index", str(index)),
        ("gpu_instance_id", str(mig.gpu_instance_id)),
        ("compute_instance_id", str(mig.compute_instance_id)),
        ("device_attributes", [("shared", shared)]),
        ("fb_memory_usage", [("total", f"{mig.memory_bytes // _MIB} MiB")]),
    ]


def _license(spec: MachineSpec, gpu: GpuState) -> Iterator[Element]:
    if spec.product.license is None:
        return
    status = "Licensed" if gpu.license.licensed else "Unlicensed (Unrestricted)"
    if gpu.license.licensed and gpu.license.expires:
        until = datetime.fromisoformat(gpu.license.expires)
        # The real one writes its numbers without leading zeros.
        status = f"Licensed (Expiry: {until.year}-{until.month}-{until.day} {until:%H:%M:%S} GMT)"
    yield (
        "vgpu_software_licensed_product",
        [("licensed_product_name", spec.product.license), ("license_status", status)],
    )


def _recovery(spec: MachineSpec, state: MachineState, gpu: GpuState) -> Iterator[Element]:
    """What repairs the GPU: one element since driver 570, and two answers before."""
    action = gpu.health.recovery_action
    is_guest = spec.product.virtualization == "vgpu"
    if knows_recovery_action(state.driver_version):
        words = (_DEPRECATED, _DEPRECATED)
    elif is_guest or action is None:
        words = (_NOT_AVAILABLE, _NOT_AVAILABLE)
    else:
        words = ("Yes" if action == "reset" else "No", "Yes" if action == "drain-and-reset" else "No")
    yield "gpu_reset_status", [("reset_required", words[0]), ("drain_and_reset_recommended", words[1])]
    if knows_recovery_action(state.driver_version):
        unknown = is_guest or action is None
        yield (
            "gpu_recovery_action",
            _NOT_AVAILABLE if unknown or action is None else _RECOVERY_ACTIONS[action],
        )


def _pci(slot: Slot, device_id: int) -> list[Element]:
    pci = slot.pci
    return [
        ("pci_bus", f"{pci.bus:02X}"),
        ("pci_device", f"{pci.device:02X}"),
        ("pci_domain", f"{pci.domain:04X}"),
        ("pci_device_id", f"{device_id:04X}10DE"),
        ("pci_bus_id", bus_id(pci)),
    ]


def _memory(spec: MachineSpec) -> list[Element]:
    total, reserved = spec.product.memory_bytes, spec.product.reserved_bytes
    if total is None:
        return [("total", _NOT_AVAILABLE), ("reserved", _NOT_AVAILABLE)]
    return [("total", f"{total // _MIB} MiB"), ("reserved", f"{reserved // _MIB} MiB")]


def _memory_health(spec: MachineSpec, gpu: GpuState) -> Iterator[Element]:
    """ECC counters, retired pages and remapped rows; a vGPU guest sees nothing of the board's memory."""
    health, is_guest = gpu.health, spec.product.virtualization == "vgpu"
    retires = spec.product.architecture in RETIRES_PAGES
    counts = (_NOT_AVAILABLE,) * 2 if is_guest else (str(health.ecc.corrected), str(health.ecc.uncorrected))
    volatile: list[Element] = (
        [("single_bit", [("total", counts[0])]), ("double_bit", [("total", counts[1])])]
        if retires
        else [
            ("sram_correctable", _NOT_AVAILABLE if is_guest else "0"),
            ("sram_uncorrectable_parity", _NOT_AVAILABLE if is_guest else "0"),
            ("sram_uncorrectable_secded", _NOT_AVAILABLE if is_guest else "0"),
            ("dram_correctable", counts[0]),
            ("dram_uncorrectable", counts[1]),
        ]
    )
    ecc = _NOT_AVAILABLE if is_guest else "Enabled"
    yield "ecc_mode", [("current_ecc", ecc), ("pending_ecc", ecc)]
    yield "ecc_errors", [("volatile", volatile)]
    pending = ("No", "Yes")[health.page_pending] if retires and not is_guest else _NOT_AVAILABLE
    yield "retired_pages", [("pending_blacklist", pending), ("pending_retirement", pending)]
    if retires or is_guest:
        yield "remapped_rows", _NOT_AVAILABLE
        return
    rows = health.rows
    yield (
        "remapped_rows",
        [
            ("remapped_row_corr", str(rows.corrected)),
            ("remapped_row_unc", str(rows.uncorrected)),
            ("remapped_row_pending", ("No", "Yes")[rows.pending]),
            ("remapped_row_failure", ("No", "Yes")[rows.failed]),
        ],
    )


def _fabric(spec: MachineSpec, state: MachineState, gpu: GpuState) -> Element:
    if spec.fabric is None:
        return "fabric", [("state", _NOT_AVAILABLE), ("status", _NOT_AVAILABLE)]
    now = state.fabric.gpus or spec.fabric.state
    summary = gpu.health.fabric.summary.replace("-", " ").title()
    # NVML has a health only for a fabric that came up.
    is_up = spec.fabric.state == "completed"
    return (
        "fabric",
        [
            ("state", _FABRIC_STATES[now]),
            ("status", "Success" if now == "completed" else _NOT_AVAILABLE),
            ("cliqueId", str(spec.fabric.clique)),
            ("clusterUuid", spec.fabric.cluster_uuid),
            ("health", [("summary", summary if is_up else _NOT_AVAILABLE)]),
        ],
    )
