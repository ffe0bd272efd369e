"""Decodes the opaque configuration of claims and classes strictly: all errors of a document together.

GpuConfig is for whole GPUs, MigDeviceConfig for partitions, VfioDeviceConfig for GPUs that are passed
through to a virtual machine. Their fields and defaults are those of NVIDIA's own driver, so that manifests
written for it work. SharedGpuConfig is a GpuConfig that says more, which NVIDIA's driver would refuse by its
apiVersion. Each error begins with the path of its field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from driver.claims.fields import Fields
from driver.claims.memory_division import MemoryDivision, read_memory
from driver.errors import ClaimRefused

API_VERSION = "resource.nvidia.com/v1beta1"
OWN_API_VERSION = "resource.gpu-dra.dev/v1alpha1"
SHARED_GPU = "SharedGpuConfig"
"""The kind that takes the place of a GpuConfig, and the version of its fields."""

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
    one claim has, what the class says on a shared one. ``memory`` is how the claim's containers divide what
    the claim has of the GPU's memory, None where nothing is said; a GpuConfig of NVIDIA's says nothing.
    """

    strategy: Literal["TimeSlicing", "MPS"] | None = None
    interval: str = ""
    mps: MpsSettings = MpsSettings()
    memory: MemoryDivision | None = None


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

    ``path`` is where the document stands; the field paths in errors begin with it. ``of_class`` as above.
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
    return replace(_gpu(document), memory=read_memory(document, of_class=of_class))


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
