"""Answers ``nvidia-smi --query-gpu``: which fields there are, what a fake GPU says of each, and the CSV.

Names, units, aliases and the words of values are those of ``nvidia-smi --help-query-gpu`` of the 570
driver. A field that nvidia-smi knows and a fake GPU has nothing for is ``[N/A]``, as on hardware without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from driver.nvml.api import NotSupported, NvmlCallFailed
from fakegpu.nvml.fake_nvml import FakeDevice, FakeNvml

NOT_AVAILABLE = "[N/A]"
_MIB = 1 << 20
_MODES = {True: "Enabled", False: "Disabled"}
_COMPUTE_MODES = {
    "default": "Default",
    "exclusive-thread": "Exclusive_Thread",
    "prohibited": "Prohibited",
    "exclusive-process": "Exclusive_Process",
}


class QueryRefused(Exception):
    """The query makes no sense; the text is what nvidia-smi says."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A GPU, its index, how many there are, and NVML for what all GPUs share."""

    device: FakeDevice
    index: int
    count: int
    nvml: FakeNvml


@dataclass(frozen=True, slots=True)
class Format:
    """What ``--format`` asks for beside CSV."""

    header: bool
    units: bool


def read_format(text: str | None) -> Format:
    """What ``--format`` says; raises QueryRefused."""
    if text is None:
        raise QueryRefused("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.")
    words = [word.strip() for word in text.split(",")]
    if "csv" not in words or set(words) - {"csv", "noheader", "nounits"}:
        raise QueryRefused("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.")
    return Format("noheader" not in words, "nounits" not in words)


def read_fields(text: str) -> list[str]:
    """The fields of a query by their own names, not by aliases; raises QueryRefused."""
    found = []
    for word in (part.strip() for part in text.split(",")):
        name = _ALIASES.get(word, word)
        if name not in _VALUES and name not in _UNKNOWN:
            raise QueryRefused(f'Field "{word}" is not a valid field to query.\n')
        found.append(name)
    return found


def csv_lines(fields: Sequence[str], form: Format, gpus: Sequence[Asked]) -> list[str]:
    """The lines of the answer."""
    lines = []
    if form.header:
        lines.append(", ".join(f"{name} [{_UNITS[name]}]" if name in _UNITS else name for name in fields))
    lines += [", ".join(_cell(name, gpu, units=form.units) for name in fields) for gpu in gpus]
    return lines


def _cell(name: str, gpu: Asked, *, units: bool) -> str:
    value = _VALUES.get(name)
    if value is None:
        return NOT_AVAILABLE
    try:
        text = value(gpu)
    except NotSupported:
        return NOT_AVAILABLE
    except NvmlCallFailed:
        return "[Unknown Error]"
    return f"{text} {_UNITS[name]}" if units and name in _UNITS and text != NOT_AVAILABLE else text


def _bus_id(gpu: Asked) -> str:
    pci = gpu.device.pci()
    return f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.{pci.function:X}"


def _compute_mode(gpu: Asked) -> str:
    mode = gpu.device.compute_mode()
    return NOT_AVAILABLE if mode is None else _COMPUTE_MODES[mode]


def _compute_capability(gpu: Asked) -> str:
    major, minor = gpu.device.compute_capability()
    return f"{major}.{minor}"


def _total(gpu: Asked) -> str:
    return str(gpu.device.memory_bytes() // _MIB)


def _used(gpu: Asked) -> str:
    return str(gpu.device.memory_use().used_bytes // _MIB)


def _reserved(gpu: Asked) -> str:
    return str(gpu.device.memory_use().reserved_bytes // _MIB)


def _free(gpu: Asked) -> str:
    use = gpu.device.memory_use()
    return str((use.total_bytes - use.used_bytes - use.reserved_bytes) // _MIB)


def _watts(milliwatts: int) -> str:
    return f"{milliwatts / 1000:.2f}"


_VALUES: dict[str, Callable[[Asked], str]] = {
    "timestamp": lambda _: datetime.now().astimezone().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3],
    "driver_version": lambda gpu: gpu.nvml.driver_version(),
    "count": lambda gpu: str(gpu.count),
    "name": lambda gpu: gpu.device.name(),
    "uuid": lambda gpu: gpu.device.uuid(),
    "index": lambda gpu: str(gpu.index),
    "pci.bus_id": _bus_id,
    "pci.domain": lambda gpu: f"0x{gpu.device.pci().domain:04X}",
    "pci.bus": lambda gpu: f"0x{gpu.device.pci().bus:02X}",
    "pci.device": lambda gpu: f"0x{gpu.device.pci().device:02X}",
    "memory.total": _total,
    "memory.used": _used,
    "memory.free": _free,
    "memory.reserved": _reserved,
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
    "compute_cap": _compute_capability,
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

_UNKNOWN = frozenset(
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
