"""Decodes the opaque configuration of claims and classes strictly, and reports all of its errors at once.

GpuConfig is for whole GPUs, MigDeviceConfig for partitions, VfioDeviceConfig for GPUs that are passed
through to a virtual machine. Their fields and defaults are those of NVIDIA's own driver, so that manifests
written for it work. Each error begins with the path of its field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from driver.errors import ClaimRefused
from kubernetes_rules.quantity import format_bytes, parse_quantity

API_VERSION = "resource.nvidia.com/v1beta1"

_INTERVALS = ("Default", "Short", "Medium", "Long")
_BACKEND_POLICIES = ("LegacyOnly", "PreferIommuFD")
_SMALLEST_PINNED_BYTES = 1 << 20


class Fields:
    """One object of the document. A field is removed when it is read; ``end`` reports what is left."""

    def __init__(self, value: Any, path: str, errors: list[str]) -> None:
        self.path, self.errors = path, errors
        self.values: dict[str, Any] = {}
        if isinstance(value, Mapping):
            self.values = {str(name): one for name, one in value.items()}
        elif value is not None:
            errors.append(f"{path or 'parameters'}: must be an object")

    def at(self, name: str) -> str:
        """The path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def wrong(self, name: str, message: str) -> None:
        """Add an error about a field."""
        self.errors.append(f"{self.at(name)}: {message}")

    def missing(self, name: str, wanted: str) -> None:
        """Add an error about a required field, unless there is one about it already."""
        if not any(error.startswith(f"{self.at(name)}: ") for error in self.errors):
            self.wrong(name, f"is required and must be {wanted}")

    def nested(self, name: str) -> Fields:
        """The object in a field; an empty one if the field is absent."""
        return Fields(self.values.pop(name, None), self.at(name), self.errors)

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        """The word in a field, None if it is absent or not allowed."""
        value = self.values.pop(name, None)
        if value is None:
            return None
        if isinstance(value, str) and value in allowed:
            return value
        self.wrong(name, f"must be one of {', '.join(allowed)}")
        return None

    def boolean(self, name: str, *, default: bool = False) -> bool:
        """The value of a boolean field."""
        value = self.values.pop(name, None)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.wrong(name, "must be true or false")
        return value is True

    def quantity_bytes(self, name: str, value: Any, least_bytes: int) -> int | None:
        """The value of a field in bytes; None if it is absent, malformed or below ``least_bytes``."""
        if value is None:
            return None
        try:
            number = parse_quantity(str(value))
        except ValueError as error:
            self.wrong(name, str(error))
            return None
        if number < least_bytes:
            self.wrong(name, f"must be at least {format_bytes(least_bytes)}")
            return None
        return int(number)

    def end(self) -> None:
        """Report every field that was not read."""
        for name in self.values:
            self.wrong(name[:64], "unknown field")


@dataclass(frozen=True, slots=True)
class MpsSettings:
    """Limits for the clients of an MPS control daemon; None or empty if the document has none."""

    active_thread_percentage: int | None = None
    pinned_memory_bytes: int | None = None
    pinned_memory_bytes_per_device: tuple[tuple[str, int], ...] = ()
    multi_user: bool = False


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """How to use a GPU. ``strategy`` None means that one claim has it alone.

    ``interval`` is the time-slice. If the document has none it is empty, which means the driver's default on
    a GPU that one claim has, and the class's interval on a shared one.
    """

    strategy: Literal["TimeSlicing", "MPS"] | None = None
    interval: str = ""
    mps: MpsSettings = MpsSettings()


@dataclass(frozen=True, slots=True)
class MigDeviceConfig:
    """How to use a partition. ``strategy`` None means that one claim has it alone.

    TimeSlicing is accepted and has no effect: a partition has no time-slice that could be set.
    """

    strategy: Literal["TimeSlicing", "MPS"] | None = None
    mps: MpsSettings = MpsSettings()


@dataclass(frozen=True, slots=True)
class VfioDeviceConfig:
    """How a GPU is passed through to a virtual machine.

    ``enable_api_device`` also gives the container the device node through which the machine's monitor
    reaches the IOMMU; without that node no monitor can use the GPU.
    """

    backend_policy: Literal["LegacyOnly", "PreferIommuFD"] = "LegacyOnly"
    # On by default as in NVIDIA's driver since the release after 0.5.0 (kubernetes-sigs/dra-driver-nvidia-gpu
    # issue 1415); before that release it was off.
    enable_api_device: bool = True


Document = GpuConfig | MigDeviceConfig | VfioDeviceConfig


class MalformedConfig(ClaimRefused):
    """An opaque document does not fit its kind; each of ``errors`` begins with its field path."""

    def __init__(self, errors: Iterable[str]) -> None:
        self.errors = tuple(errors)
        super().__init__(
            "the opaque configuration is malformed: " + "; ".join(self.errors),
            "correct the claim or the DeviceClass that contains it, then create the claim again",
        )


def decode_for(parameters: Any, wanted: str, device: str) -> Document:
    """Decode one opaque document that applies to a device.

    ``wanted`` is the kind of document that the device takes, empty for none; ``device`` names such a device
    for people. Raises ClaimRefused with every error and its field path.
    """
    if not wanted:
        raise ClaimRefused(
            f"an opaque configuration applies to {device}, which has no configuration",
            "remove it, or name the `requests` that it is for",
        )
    fields = Fields(parameters, "", [])
    kind = _head(fields, wanted)
    if kind is not None and kind != wanted:
        raise ClaimRefused(
            f"the opaque configuration is a {kind}, but the device it applies to is {device}",
            f"use kind {wanted}, or name the `requests` that it is for",
        )
    config = _READERS[kind or wanted](fields)
    _end(fields)
    return config


def decode_any(parameters: Any, path: str = "") -> Document:
    """Decode one opaque document by its own ``kind``.

    The field paths in errors begin with ``path``, the place of the document. Raises MalformedConfig.
    """
    fields = Fields(parameters, path, [])
    if fields.errors:
        raise MalformedConfig(fields.errors)
    kind = _head(fields, f"{', '.join(KINDS[:-1])} or {KINDS[-1]}")
    if kind is None:
        # Without a kind it is not known which other fields are allowed.
        raise MalformedConfig(fields.errors)
    config = _READERS[kind](fields)
    _end(fields)
    return config


def _head(fields: Fields, wanted: str) -> str | None:
    """The kind of a document, None if it is none of ours; removes apiVersion and kind from the fields."""
    if fields.choice("apiVersion", (API_VERSION,)) is None:
        fields.missing("apiVersion", API_VERSION)
    kind = fields.choice("kind", KINDS)
    if kind is None:
        fields.missing("kind", wanted)
    return kind


def _end(fields: Fields) -> None:
    """Raise MalformedConfig if there were any errors."""
    fields.end()
    if fields.errors:
        raise MalformedConfig(fields.errors)


def _gpu_sharing(fields: Fields) -> GpuConfig:
    if not fields.values:
        return GpuConfig()
    strategy = _strategy(fields)
    if strategy != "TimeSlicing" and "timeSlicingConfig" in fields.values:
        fields.wrong("timeSlicingConfig", "is allowed only with strategy TimeSlicing")
    slicing = fields.nested("timeSlicingConfig")
    interval = slicing.choice("interval", _INTERVALS) or ""
    slicing.end()
    mps = _mps(fields.nested("mpsConfig"))
    fields.end()
    return GpuConfig(strategy, interval, mps)


def _mig_sharing(fields: Fields) -> MigDeviceConfig:
    if not fields.values:
        return MigDeviceConfig()
    config = MigDeviceConfig(_strategy(fields), _mps(fields.nested("mpsConfig")))
    fields.end()
    return config


def _iommu(fields: Fields) -> VfioDeviceConfig:
    policy = fields.choice("backendPolicy", _BACKEND_POLICIES)
    enable_api_device = fields.boolean("enableAPIDevice", default=True)
    fields.end()
    return VfioDeviceConfig("PreferIommuFD" if policy == "PreferIommuFD" else "LegacyOnly", enable_api_device)


def _strategy(fields: Fields) -> Literal["TimeSlicing", "MPS"] | None:
    """The strategy of a sharing object; mpsConfig goes with MPS only."""
    strategy = fields.choice("strategy", ("TimeSlicing", "MPS"))
    if strategy is None:
        fields.missing("strategy", "TimeSlicing or MPS")
    if strategy != "MPS" and "mpsConfig" in fields.values:
        fields.wrong("mpsConfig", "is allowed only with strategy MPS")
    if strategy == "MPS":
        return "MPS"
    return "TimeSlicing" if strategy == "TimeSlicing" else None


def _mps(fields: Fields) -> MpsSettings:
    percentage = fields.values.pop("defaultActiveThreadPercentage", None)
    if percentage is not None and not (type(percentage) is int and 0 <= percentage <= 100):
        fields.wrong("defaultActiveThreadPercentage", "must be a whole number from 0 to 100")
        percentage = None
    multi_user = fields.boolean("multiUser")
    name = "defaultPinnedDeviceMemoryLimit"
    limit = fields.quantity_bytes(name, fields.values.pop(name, None), _SMALLEST_PINNED_BYTES)
    devices = fields.nested("defaultPerDevicePinnedMemoryLimit")
    per_device = tuple(
        (str(key), number)
        for key, value in sorted(devices.values.items())
        if (number := devices.quantity_bytes(str(key)[:64], value, _SMALLEST_PINNED_BYTES)) is not None
    )
    fields.end()
    return MpsSettings(percentage, limit, per_device, multi_user)


_READERS: dict[str, Callable[[Fields], Document]] = {
    "GpuConfig": lambda fields: _gpu_sharing(fields.nested("sharing")),
    "MigDeviceConfig": lambda fields: _mig_sharing(fields.nested("sharing")),
    "VfioDeviceConfig": lambda fields: _iommu(fields.nested("iommu")),
}
KINDS = tuple(_READERS)
"""All kinds of documents."""
