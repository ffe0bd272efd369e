"""Answers ``nvidia-smi --query-gpu``: the fields, their values for a fake GPU, and the CSV.

Names, units, aliases and the words of values are those of ``nvidia-smi --help-query-gpu`` of the 570
driver. A field for which a fake GPU has no value is ``[N/A]``, as on hardware without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from driver.nvml.api import NotSupported, NvmlCallFailed
from driver.nvml.pci_address import PciAddress
from fakegpu.nvml.fake_nvml import FakeDevice, FakeNvml

_NOT_AVAILABLE = "[N/A]"
_MIB = 1 << 20
_MODES = {True: "Enabled", False: "Disabled"}
_COMPUTE_MODES = {
    "default": "Default",
    "exclusive-thread": "Exclusive_Thread",
    "prohibited": "Prohibited",
    "exclusive-process": "Exclusive_Process",
}


class QueryRefused(Exception):
    """The query is invalid; the message is what nvidia-smi prints."""


@dataclass(frozen=True, slots=True)
class QueriedGpu:
    """A GPU, its index, the number of GPUs, and NVML for the fields that are the same for all GPUs."""

    device: FakeDevice
    index: int
    count: int
    nvml: FakeNvml


@dataclass(frozen=True, slots=True)
class Format:
    """The options of ``--format=csv``."""

    header: bool
    units: bool


def read_format(text: str | None) -> Format:
    """Read the value of ``--format``; raises QueryRefused."""
    if text is None:
        raise QueryRefused("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.")
    words = [word.strip() for word in text.split(",")]
    if "csv" not in words or set(words) - {"csv", "noheader", "nounits"}:
        raise QueryRefused("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.")
    return Format("noheader" not in words, "nounits" not in words)


def read_fields(text: str) -> list[str]:
    """The fields of a query, with aliases replaced by the fields' own names; raises QueryRefused."""
    found = []
    for word in (part.strip() for part in text.split(",")):
        name = _ALIASES.get(word, word)
        if name not in _VALUES and name not in _WITHOUT_VALUE:
            raise QueryRefused(f'Field "{word}" is not a valid field to query.\n')
        found.append(name)
    return found


def csv_lines(fields: Sequence[str], form: Format, gpus: Sequence[QueriedGpu]) -> list[str]:
    """The lines of the answer."""
    lines = []
    if form.header:
        lines.append(", ".join(f"{name} [{_UNITS[name]}]" if name in _UNITS else name for name in fields))
    lines += [", ".join(_cell(name, gpu, units=form.units) for name in fields) for gpu in gpus]
    return lines


def bus_id(pci: PciAddress) -> str:
    """An address as NVML prints it: with eight digits of the domain, where sysfs has four."""
    return f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.{pci.function:X}"


def _cell(name: str, gpu: QueriedGpu, *, units: bool) -> str:
    value = _VALUES.get(name)
    if value is None:
        return _NOT_AVAILABLE
    try:
        text = value(gpu)
    except NotSupported:
        return _NOT_AVAILABLE
    except NvmlCallFailed:
        return "[Unknown Error]"
    return f"{text} {_UNITS[name]}" if units and name in _UNITS and text != _NOT_AVAILABLE else text


def _compute_mode(gpu: QueriedGpu) -> str:
    mode = gpu.device.compute_mode()
    return _NOT_AVAILABLE if mode is None else _COMPUTE_MODES[mode]


def _free(gpu: QueriedGpu) -> str:
    use = gpu.device.memory_use()
    return str((use.total_bytes - use.used_bytes - use.reserved_bytes) // _MIB)


def _watts(milliwatts: int) -> str:
    return f"{milliwatts / 1000:.2f}"


_VALUES: dict[str, Callable[[QueriedGpu], str]] = {
    "timestamp": lambda _: datetime.now().astimezone().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3],
    "driver_version": lambda gpu: gpu.nvml.driver_version(),
    "count": lambda gpu: str(gpu.count),
    "name": lambda gpu: gpu.device.name(),
    "uuid": lambda gpu: gpu.device.uuid(),
    "index": lambda gpu: str(gpu.index),
    "pci.bus_id": lambda gpu: bus_id(gpu.device.pci()),
    "pci.domain": lambda gpu: f"0x{gpu.device.pci().domain:04X}",
    "pci.bus": lambda gpu: f"0x{gpu.device.pci().bus:02X}",
    "pci.device": lambda gpu: f"0x{gpu.device.pci().device:02X}",
    "memory.total": lambda gpu: str(gpu.device.memory_bytes() // _MIB),
    "memory.used": lambda gpu: str(gpu.device.memory_use().used_bytes // _MIB),
    "memory.free": _free,
    "memory.reserved": lambda gpu: str(gpu.device.memory_use().reserved_bytes // _MIB),
    "utilization.gpu": lambda gpu: f"{gpu.device.utilisation().compute * 100:.0f}",
    "utilization.memory": lambda gpu: f"{gpu.device.utilisation().memory * 100:.0f}",
    "temperature.gpu": lambda gpu: str(gpu.device.temperature_celsius()),
    "power.draw": lambda gpu: _watts(gpu.device.power_milliwatts()),
    "enforced.power.limit": lambda gpu: _watts(gpu.device.power_limit_milliwatts()),
    "ecc.errors.corrected.volatile.total": lambda gpu: str(gpu.device.ecc_errors().corrected),
    "ecc.errors.uncorrected.volatile.total": lambda gpu: str(gpu.device.ecc_errors().uncorrected),
    "mig.mode.current": lambda gpu: _MODES[gpu.device.mig_mode().enabled],
    "mig.mode.pending": lambda gpu: _MODES[gpu.device.mig_mode().pending],
    "compute_mode": _compute_mode,
    "persistence_mode": lambda gpu: _MODES[gpu.device.persistence_mode()],
    "compute_cap": lambda gpu: ".".join(map(str, gpu.device.compute_capability())),
}

_ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "gpu_serial": "serial",
}

_UNITS = {
    **dict.fromkeys(("memory.total", "memory.used", "memory.free", "memory.reserved"), "MiB"),
    **dict.fromkeys(("utilization.gpu", "utilization.memory", "fan.speed"), "%"),
    **dict.fromkeys(("power.draw", "power.limit", "enforced.power.limit", "power.max_limit"), "W"),
    **dict.fromkeys(("clocks.current.graphics", "clocks.current.sm", "clocks.current.memory"), "MHz"),
    **dict.fromkeys(("clocks.max.graphics", "clocks.max.sm", "clocks.max.memory"), "MHz"),
}

_WITHOUT_VALUE = frozenset(
    {
        *("serial", "vbios_version", "pci.device_id", "pci.sub_device_id", "pstate"),
        *("display_mode", "display_active", "accounting.mode"),
        *("temperature.memory", "fan.speed", "power.limit", "power.max_limit"),
        *("ecc.mode.current", "ecc.mode.pending", "inforom.img", "gom.current"),
        *("clocks.current.graphics", "clocks.current.sm", "clocks.current.memory", "clocks.max.graphics"),
        *("clocks.max.sm", "clocks.max.memory", "pcie.link.gen.current", "pcie.link.width.current"),
    }
)
"""Fields of nvidia-smi for which a fake GPU has no value."""
