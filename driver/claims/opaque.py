"""Decodes the opaque configuration of claims and classes strictly: resource.nvidia.com/v1beta1.

GpuConfig is for whole GPUs, MigDeviceConfig for partitions, VfioDeviceConfig for GPUs that are passed
through to a virtual machine. The kinds, fields and defaults are those of NVIDIA's own driver, so that
manifests written for it work. All errors of one document are reported together, each with the path of its
field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from driver.errors import ClaimRefused
from kubernetes_rules.quantity import parse_quantity

API_VERSION = "resource.nvidia.com/v1beta1"
_INTERVALS = ("Default", "Short", "Medium", "Long")
_BACKEND_POLICIES = ("LegacyOnly", "PreferIommuFD")
_SMALLEST_PINNED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class MpsSettings:
    """Limits for the clients of an MPS control daemon; None or empty where the document says nothing."""

    active_thread_percentage: int | None = None
    pinned_memory_bytes: int | None = None
    pinned_memory_bytes_per_device: tuple[tuple[str, int], ...] = ()
    multi_user: bool = False


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """How a whole GPU is to be used. ``strategy`` None means by one claim alone.

    ``interval`` is the time-slice, empty where the document says none: the driver's default on a GPU that
    one claim has, what the class says on a shared one.
    """

    strategy: Literal["TimeSlicing", "MPS"] | None = None
    interval: str = ""
    mps: MpsSettings = MpsSettings()


@dataclass(frozen=True, slots=True)
class MigDeviceConfig:
    """How a partition is to be used. ``strategy`` None means by one claim alone.

    TimeSlicing is accepted and asks for nothing: a partition has no interval that could be set.
    """

    strategy: Literal["TimeSlicing", "MPS"] | None = None
    mps: MpsSettings = MpsSettings()


@dataclass(frozen=True, slots=True)
class VfioDeviceConfig:
    """How a GPU is passed through to a virtual machine.

    ``enable_api_device`` asks for the node through which the machine's monitor reaches the IOMMU, beside
    the device itself, and is on unless the document says otherwise: without that node no monitor can use the
    device. So it is with NVIDIA's driver since the release after 0.5.0 (kubernetes-sigs/dra-driver-nvidia-gpu
    issue 1415); before, it was off.
    """

    backend_policy: Literal["LegacyOnly", "PreferIommuFD"] = "LegacyOnly"
    enable_api_device: bool = True


Document = GpuConfig | MigDeviceConfig | VfioDeviceConfig


class MalformedConfig(ClaimRefused):
    """An opaque document is not what its kind asks for; each of ``errors`` begins with its field path."""

    def __init__(self, errors: Iterable[str]) -> None:
        self.errors = tuple(errors)
        super().__init__(
            "the opaque configuration is malformed: " + "; ".join(self.errors),
            "correct the claim or the DeviceClass that carries it, then create the claim anew",
        )


class _Fields:
    """One object of the document: hands out its fields, and complains of those nobody asked for."""

    def __init__(self, value: Any, path: str, errors: list[str]) -> None:
        self.path, self.errors = path, errors
        self.values: dict[str, Any] = {}
        if isinstance(value, Mapping):
            self.values = dict(value)
        elif value is not None:
            errors.append(f"{path or 'parameters'}: must be an object")

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def wrong(self, name: str, message: str) -> None:
        self.errors.append(f"{self.at(name)}: {message}")

    def nested(self, name: str) -> _Fields:
        return _Fields(self.values.pop(name, None), self.at(name), self.errors)

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        value = self.values.pop(name, None)
        if value is None:
            return None
        if isinstance(value, str) and value in allowed:
            return value
        self.wrong(name, f"must be one of {', '.join(allowed)}")
        return None

    def boolean(self, name: str, *, default: bool = False) -> bool:
        value = self.values.pop(name, None)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.wrong(name, "must be true or false")
        return value is True

    def end(self) -> None:
        for name in self.values:
            self.wrong(str(name)[:64], "unknown field")


def decode_for(parameters: Any, wanted: str, device: str) -> Document:
    """Decode one opaque document that applies to a device.

    ``wanted`` is the kind of document that the device takes, empty for none; ``device`` names such a device
    for people. Raises ClaimRefused that lists every error with its field path.
    """
    if not wanted:
        raise ClaimRefused(
            f"an opaque configuration applies to {device}, which takes none",
            "remove it, or name the `requests` that it is meant for",
        )
    fields = _document(parameters, wanted, device)
    config = _READERS[wanted](fields)
    _end(fields)
    return config


def decode_any(parameters: Any, path: str = "") -> Document:
    """Decode one opaque document as the kind that it says it is.

    ``path`` is where the document stands; the field paths in errors begin with it. Raises MalformedConfig.
    """
    fields = _Fields(parameters, path, [])
    if fields.errors:
        raise MalformedConfig(fields.errors)
    kind = _head(fields, "GpuConfig, MigDeviceConfig or VfioDeviceConfig")
    if kind is None:
        raise MalformedConfig(fields.errors)  # of the other fields nobody can say what they should be
    config = _READERS[kind](fields)
    _end(fields)
    return config


def _document(parameters: Mapping[str, Any], wanted: str, device: str) -> _Fields:
    """The fields of a document of the wanted kind, its head taken off; raises ClaimRefused for another."""
    fields = _Fields(parameters, "", [])
    kind = _head(fields, wanted)
    if kind is not None and kind != wanted:
        raise ClaimRefused(
            f"the opaque configuration is a {kind}, but the device it applies to is {device}",
            f"use kind {wanted}, or name the `requests` that it is meant for",
        )
    return fields


def _head(fields: _Fields, wanted: str) -> str | None:
    """The kind of a document, None when it is none of ours; takes apiVersion and kind off."""
    if fields.choice("apiVersion", (API_VERSION,)) is None:
        _missing(fields, "apiVersion", API_VERSION)
    kind = fields.choice("kind", KINDS)
    if kind is None:
        _missing(fields, "kind", wanted)
    return kind


def _end(fields: _Fields) -> None:
    """Raise MalformedConfig when anything in the document was wrong."""
    fields.end()
    if fields.errors:
        raise MalformedConfig(fields.errors)


def _missing(fields: _Fields, name: str, wanted: str) -> None:
    if not any(error.startswith(f"{fields.at(name)}: ") for error in fields.errors):
        fields.wrong(name, f"is required and must be {wanted}")


def _gpu_sharing(fields: _Fields) -> GpuConfig:
    if not fields.values:
        return GpuConfig()
    strategy = _strategy(fields)
    if strategy != "TimeSlicing" and "timeSlicingConfig" in fields.values:
        fields.wrong("timeSlicingConfig", "goes with strategy TimeSlicing only")
    slicing = fields.nested("timeSlicingConfig")
    interval = slicing.choice("interval", _INTERVALS) or ""
    slicing.end()
    mps = _mps(fields.nested("mpsConfig"))
    fields.end()
    return GpuConfig(strategy, interval, mps)


def _mig_sharing(fields: _Fields) -> MigDeviceConfig:
    if not fields.values:
        return MigDeviceConfig()
    config = MigDeviceConfig(_strategy(fields), _mps(fields.nested("mpsConfig")))
    fields.end()
    return config


def _iommu(fields: _Fields) -> VfioDeviceConfig:
    policy = fields.choice("backendPolicy", _BACKEND_POLICIES)
    enable_api_device = fields.boolean("enableAPIDevice", default=True)
    fields.end()
    return VfioDeviceConfig("PreferIommuFD" if policy == "PreferIommuFD" else "LegacyOnly", enable_api_device)


def _strategy(fields: _Fields) -> Literal["TimeSlicing", "MPS"] | None:
    """The strategy of a sharing object, which has to go with its mpsConfig."""
    strategy = fields.choice("strategy", ("TimeSlicing", "MPS"))
    if strategy is None:
        _missing(fields, "strategy", "TimeSlicing or MPS")
    if strategy != "MPS" and "mpsConfig" in fields.values:
        fields.wrong("mpsConfig", "goes with strategy MPS only")
    if strategy == "MPS":
        return "MPS"
    return "TimeSlicing" if strategy == "TimeSlicing" else None


def _mps(fields: _Fields) -> MpsSettings:
    percentage = fields.values.pop("defaultActiveThreadPercentage", None)
    if percentage is not None and not (type(percentage) is int and 0 <= percentage <= 100):
        fields.wrong("defaultActiveThreadPercentage", "must be a whole number from 0 to 100")
        percentage = None
    multi_user = fields.boolean("multiUser")
    limit = _pinned_bytes(
        fields, "defaultPinnedDeviceMemoryLimit", fields.values.pop("defaultPinnedDeviceMemoryLimit", None)
    )
    devices = fields.nested("defaultPerDevicePinnedMemoryLimit")
    per_device = tuple(
        (str(key), number)
        for key, value in sorted(devices.values.items())
        if (number := _pinned_bytes(devices, str(key)[:64], value)) is not None
    )
    fields.end()
    return MpsSettings(percentage, limit, per_device, multi_user)


def _pinned_bytes(fields: _Fields, name: str, value: Any) -> int | None:
    if value is None:
        return None
    try:
        number = parse_quantity(str(value))
    except ValueError as error:
        fields.wrong(name, str(error))
        return None
    if number < _SMALLEST_PINNED_BYTES:
        fields.wrong(name, "must be at least 1Mi")
        return None
    return int(number)


_READERS: dict[str, Callable[[_Fields], Document]] = {
    "GpuConfig": lambda fields: _gpu_sharing(fields.nested("sharing")),
    "MigDeviceConfig": lambda fields: _mig_sharing(fields.nested("sharing")),
    "VfioDeviceConfig": lambda fields: _iommu(fields.nested("iommu")),
}
KINDS = tuple(_READERS)
"""The kinds of documents that there are."""
