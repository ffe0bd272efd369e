"""Decodes the opaque configuration of claims and classes strictly: all errors of a document together.

GpuConfig is for whole GPUs, MigDeviceConfig for partitions, VfioDeviceConfig for GPUs that are passed
through to a virtual machine. Their fields and defaults are those of NVIDIA's own driver, so that manifests
written for it work. SharedGpuConfig is a GpuConfig that says more, which NVIDIA's driver would refuse by its
apiVersion. Each error begins with the path of its field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from driver.devices.memory_limits import SMALLEST_LIMIT_BYTES
from driver.errors import ClaimRefused
from kubernetes_rules.quantity import format_bytes, parse_quantity

LARGEST_FACTOR = 1000
"""More than any GPU has of the smallest share: ``toFree`` asks for all that is free."""

_CONTAINER = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
"""What a container can be called (RFC 1123 label, ValidateDNS1123Label of k8s.io/kubernetes)."""

API_VERSION = "resource.nvidia.com/v1beta1"
OWN_API_VERSION = "resource.gpu-dra.dev/v1alpha1"
SHARED_GPU = "SharedGpuConfig"
"""The kind that takes the place of a GpuConfig, and the version of its fields."""

_INTERVALS = ("Default", "Short", "Medium", "Long")
_BACKEND_POLICIES = ("LegacyOnly", "PreferIommuFD")
_SMALLEST_PINNED_BYTES = 1 << 20


class Fields:
    """One object of the document: hands out its fields, and reports those that were not asked for."""

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
        """Complain of a field."""
        self.errors.append(f"{self.at(name)}: {message}")

    def missing(self, name: str, wanted: str) -> None:
        """Complain of a field that has to be there, unless it was complained of already."""
        if not any(error.startswith(f"{self.at(name)}: ") for error in self.errors):
            self.wrong(name, f"is required and must be {wanted}")

    def nested(self, name: str) -> Fields:
        """The object that a field has; one without fields where it has none."""
        return Fields(self.values.pop(name, None), self.at(name), self.errors)

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        """The word that a field has, None where it has none of these."""
        value = self.values.pop(name, None)
        if value is None:
            return None
        if isinstance(value, str) and value in allowed:
            return value
        self.wrong(name, f"must be one of {', '.join(allowed)}")
        return None

    def boolean(self, name: str, *, default: bool = False) -> bool:
        """Whether a field says so."""
        value = self.values.pop(name, None)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.wrong(name, "must be true or false")
        return value is True

    def quantity_bytes(self, name: str, value: Any, least_bytes: int) -> int | None:
        """What the value of a field means in bytes; None where there is none, or none of at least so many."""
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
        """Report every field that was not asked for."""
        for name in self.values:
            self.wrong(name[:64], "unknown field")


@dataclass(frozen=True, slots=True)
class Burst:
    """How far the containers of a share may go beyond what it guarantees, while others do not need it.

    ``factor`` is a multiple of the share; None where ``to_free`` lets them have all that no claim is
    guaranteed.
    """

    factor: Fraction | None = None
    to_free: bool = False


@dataclass(frozen=True, slots=True)
class MemoryDivision:
    """How the memory that a claim has of a GPU is divided among its containers; bytes.

    ``parts`` is what single containers get, by their names. The others have equal parts of the rest, at most
    ``each_bytes`` where that is not 0. ``burst`` counts only where a class says it.
    """

    parts: tuple[tuple[str, int], ...] = ()
    each_bytes: int = 0
    burst: Burst | None = None

    @property
    def is_burst_alone(self) -> bool:
        """Whether nothing is said of the containers, so that only a share is concerned."""
        return self.burst is not None and not self.parts and not self.each_bytes


def _read_memory(document: Fields, *, of_class: bool) -> MemoryDivision | None:
    """What the field ``memory`` of a document says, None where it is not there.

    ``of_class`` is whether a DeviceClass carries the document: a burst takes memory that others may want, so
    an admin alone allows it.
    """
    said = document.values.get("memory")
    fields = document.nested("memory")
    if said is None:
        return None
    named = fields.nested("parts")
    for name in named.values:
        if not _CONTAINER.fullmatch(name):
            named.wrong(name[:64], "is no name that a container can have")
    parts = tuple(
        (name, part_bytes)
        for name, value in named.values.items()
        if (part_bytes := named.quantity_bytes(name[:64], value, SMALLEST_LIMIT_BYTES)) is not None
    )
    each_bytes = fields.quantity_bytes("each", fields.values.pop("each", None), SMALLEST_LIMIT_BYTES) or 0
    burst = _burst(fields, of_class=of_class)
    fields.end()
    return MemoryDivision(tuple(sorted(parts)), each_bytes, burst)


def _burst(memory: Fields, *, of_class: bool) -> Burst | None:
    said = memory.values.get("burst")
    fields = memory.nested("burst")
    if said is None:
        return None
    if not of_class:
        memory.wrong("burst", "counts in a DeviceClass alone: use a class that allows it, or leave it out")
    is_empty_or_twice = (fields.values.get("factor") is not None) == (fields.values.get("toFree") is True)
    if isinstance(said, Mapping) and is_empty_or_twice:
        memory.wrong("burst", "must have either factor or toFree: true")
    burst = Burst(_factor(fields), fields.boolean("toFree"))
    fields.end()
    return burst


def _factor(fields: Fields) -> Fraction | None:
    value = fields.values.pop("factor", None)
    if value is None:
        return None
    if type(value) not in (int, float) or not 1 <= value <= LARGEST_FACTOR:
        fields.wrong("factor", f"must be a number from 1 to {LARGEST_FACTOR}")
        return None
    return Fraction(str(value))


@dataclass(frozen=True, slots=True)
class MpsSettings:
    """Limits for the clients of an MPS control daemon; None or empty where the document says nothing."""

    active_thread_percentage: int | None = None
    pinned_memory_bytes: int | None = None
    pinned_memory_bytes_per_device: tuple[tuple[str, int], ...] = ()
    multi_user: bool = False


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """How to use a whole GPU. ``strategy`` None means by one claim alone.

    ``interval`` is the time-slice, empty where the document says none: the driver's default on a GPU that
    one claim has, what the class says on a shared one. ``memory`` is how the claim's containers divide what
    the claim has of the GPU's memory, None where nothing is said; a GpuConfig of NVIDIA's says nothing.
    """

    strategy: Literal["TimeSlicing", "MPS"] | None = None
    interval: str = ""
    mps: MpsSettings = MpsSettings()
    memory: MemoryDivision | None = None


@dataclass(frozen=True, slots=True)
class MigDeviceConfig:
    """How to use a partition. ``strategy`` None means by one claim alone.

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


def is_for(kind: str, wanted: str) -> bool:
    """Whether a document of this kind is for the devices that take the wanted kind."""
    return kind == wanted or (kind == SHARED_GPU and wanted == "GpuConfig")


def decode_for(parameters: Any, wanted: str, device: str, *, of_class: bool = False) -> Document:
    """Decode one opaque document that applies to a device.

    ``wanted`` is the kind of document that the device takes, empty for none; ``device`` names such a device
    for people. ``of_class`` is whether a DeviceClass carries the document, which may say more. Raises
    ClaimRefused that lists every error with its field path.
    """
    if not wanted:
        raise ClaimRefused(
            f"an opaque configuration applies to {device}, which takes none",
            "remove it, or name the `requests` that it is meant for",
        )
    fields = Fields(parameters, "", [])
    kind = _head(fields, wanted)
    if kind is not None and not is_for(kind, wanted):
        why = ", whose memory it cannot divide" if fields.values.get("memory") is not None else ""
        raise ClaimRefused(
            f"the opaque configuration is a {kind}, but the device it applies to is {device}{why}",
            f"use kind {wanted}, or name the `requests` that it is meant for",
        )
    config = _READERS[kind or wanted](fields, of_class)
    _end(fields)
    return config


def decode_any(parameters: Any, path: str = "", *, of_class: bool = False) -> Document:
    """Decode one opaque document as the kind that it says it is.

    ``path`` is the document's place; the field paths in errors begin with it. ``of_class`` as above.
    Raises MalformedConfig.
    """
    fields = Fields(parameters, path, [])
    if fields.errors:
        raise MalformedConfig(fields.errors)
    kind = _head(fields, f"{', '.join(KINDS[:-1])} or {KINDS[-1]}")
    if kind is None:
        raise MalformedConfig(fields.errors)  # of the other fields nobody can say what they should be
    config = _READERS[kind](fields, of_class)
    _end(fields)
    return config


def _head(fields: Fields, wanted: str) -> str | None:
    """The kind of a document, None when it is none of ours; takes apiVersion and kind off."""
    said = fields.values.get("kind")
    versions: tuple[str, ...] = (API_VERSION, OWN_API_VERSION)
    if said in KINDS:
        versions = (OWN_API_VERSION if said == SHARED_GPU else API_VERSION,)
    if fields.choice("apiVersion", versions) is None:
        fields.missing("apiVersion", " or ".join(versions))
    kind = fields.choice("kind", KINDS)
    if kind is None:
        fields.missing("kind", wanted)
    return kind


def _end(fields: Fields) -> None:
    """Raise MalformedConfig when anything in the document was wrong."""
    fields.end()
    if fields.errors:
        raise MalformedConfig(fields.errors)


def _gpu(document: Fields) -> GpuConfig:
    return _gpu_sharing(document.nested("sharing"))


def _own_gpu(document: Fields, of_class: bool) -> GpuConfig:
    return replace(_gpu(document), memory=_read_memory(document, of_class=of_class))


def _gpu_sharing(fields: Fields) -> GpuConfig:
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
    """The strategy of a sharing object, which has to go with its mpsConfig."""
    strategy = fields.choice("strategy", ("TimeSlicing", "MPS"))
    if strategy is None:
        fields.missing("strategy", "TimeSlicing or MPS")
    if strategy != "MPS" and "mpsConfig" in fields.values:
        fields.wrong("mpsConfig", "goes with strategy MPS only")
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


_READERS: dict[str, Callable[[Fields, bool], Document]] = {
    "GpuConfig": lambda fields, _: _gpu(fields),
    "MigDeviceConfig": lambda fields, _: _mig_sharing(fields.nested("sharing")),
    "VfioDeviceConfig": lambda fields, _: _iommu(fields.nested("iommu")),
    SHARED_GPU: _own_gpu,
}
KINDS = tuple(_READERS)
"""The kinds of documents that there are."""
