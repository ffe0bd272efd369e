"""Decodes the opaque configuration of claims and classes strictly: resource.nvidia.com/v1beta1.

GpuConfig is for whole GPUs, MigDeviceConfig for partitions. The kinds, fields and defaults are those of
NVIDIA's own driver, so that manifests written for it work. All errors of one document are reported
together, each with the path of its field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from driver.errors import ClaimRefused
from driver.quantity import parse_quantity

API_VERSION = "resource.nvidia.com/v1beta1"
_KINDS = ("GpuConfig", "MigDeviceConfig", "VfioDeviceConfig")
_INTERVALS = ("Default", "Short", "Medium", "Long")
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
    """How a whole GPU is to be used. ``strategy`` None means by one claim alone."""

    strategy: Literal["TimeSlicing", "MPS"] | None = None
    interval: str = "Default"
    mps: MpsSettings = MpsSettings()


@dataclass(frozen=True, slots=True)
class MigDeviceConfig:
    """How a partition is to be used. ``strategy`` None means by one claim alone.

    TimeSlicing is accepted and asks for nothing: a partition has no interval that could be set.
    """

    strategy: Literal["TimeSlicing", "MPS"] | None = None
    mps: MpsSettings = MpsSettings()


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

    def end(self) -> None:
        for name in self.values:
            self.wrong(str(name)[:64], "unknown field")


def decode_gpu_config(parameters: Mapping[str, Any]) -> GpuConfig:
    """Decode one opaque document that applies to a whole GPU.

    Raises ClaimRefused that lists every error with its field path.
    """
    fields = _document(parameters, "GpuConfig", "a whole GPU")
    config = _gpu_sharing(fields.nested("sharing"))
    _end(fields)
    return config


def decode_mig_config(parameters: Mapping[str, Any]) -> MigDeviceConfig:
    """Decode one opaque document that applies to a partition.

    Raises ClaimRefused that lists every error with its field path.
    """
    fields = _document(parameters, "MigDeviceConfig", "a MIG partition")
    sharing = fields.nested("sharing")
    config = MigDeviceConfig()
    if sharing.values:
        config = MigDeviceConfig(_strategy(sharing), _mps(sharing.nested("mpsConfig")))
        sharing.end()
    _end(fields)
    return config


def _document(parameters: Mapping[str, Any], wanted: str, device: str) -> _Fields:
    """The fields of a document of the wanted kind, its head taken off; raises ClaimRefused for another."""
    fields = _Fields(parameters, "", [])
    if fields.choice("apiVersion", (API_VERSION,)) is None:
        _missing(fields, "apiVersion", API_VERSION)
    kind = fields.choice("kind", _KINDS)
    if kind is None:
        _missing(fields, "kind", wanted)
    elif kind != wanted:
        raise ClaimRefused(
            f"the opaque configuration is a {kind}, but the device it applies to is {device}",
            f"use kind {wanted}, or name the `requests` that it is meant for",
        )
    return fields


def _end(fields: _Fields) -> None:
    """Raise ClaimRefused when anything in the document was wrong."""
    fields.end()
    if fields.errors:
        raise ClaimRefused(
            "the opaque configuration is malformed: " + "; ".join(fields.errors),
            "correct the claim or the DeviceClass that carries it, then create the claim anew",
        )


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
    interval = slicing.choice("interval", _INTERVALS) or "Default"
    slicing.end()
    mps = _mps(fields.nested("mpsConfig"))
    fields.end()
    return GpuConfig(strategy, interval, mps)


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
    multi_user = fields.values.pop("multiUser", False)
    if not isinstance(multi_user, bool):
        fields.wrong("multiUser", "must be true or false")
        multi_user = False
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
