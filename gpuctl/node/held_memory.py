"""Says of published devices whether the NVIDIA driver holds containers to memory of them, and if not, why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from driver.devices.memory_limits import FIRST_DRIVER, LIMITS_WITHHELD, MEMORY_LIMITS

Object = Mapping[str, Any]


def why_not_limited(device: Object) -> str | None:
    """Why the NVIDIA driver holds nobody to memory of a device, as far as is told; None where it does."""
    if _value(device, MEMORY_LIMITS) is not None:
        return None
    withheld = _value(device, LIMITS_WITHHELD)
    if withheld is not None:
        return str(withheld)
    if _value(device, "profile") is not None:
        return "it is a partition, and NVML takes no handle of MIG"
    version = str(_value(device, "driverVersion") or "")
    branch = version.partition(".")[0]
    if not branch.isdecimal():
        return "nobody could ask NVML"
    if int(branch) < FIRST_DRIVER:
        return f"its NVIDIA driver {version} is older than R{FIRST_DRIVER}, which brought them"
    return "NVML did not tell whether it can: see the log of the controller there"


def limits_lines(slices: Iterable[Object]) -> Iterator[str]:
    """A line for each answer that the whole GPUs of a node give; none where nobody shares a GPU and none can.

    GPUs are named by their indexes, as nvidia-smi counts.
    """
    answers: dict[str | None, dict[str, None]] = {}
    shared = False
    for device in (device for one in slices for device in one["spec"].get("devices") or ()):
        if _value(device, "profile") is None and _value(device, "type") in ("gpu", "shared"):
            shared = shared or bool(device.get("allowMultipleAllocations"))
            label = str(_value(device, "index"))
            answers.setdefault(why_not_limited(device), {})[label] = None
    for reason, gpus in answers.items():
        which = f"GPU {', '.join(gpus)}"
        if reason is None:
            yield f"memory limits: the NVIDIA driver holds shares to their memory on {which}"
        elif shared or LIMITS_WITHHELD in _names(slices):
            yield f"no memory limits on {which}: {reason}"


def _names(slices: Iterable[Object]) -> set[str]:
    """All attributes that any device of the slices has."""
    return {
        name
        for one in slices
        for device in one["spec"].get("devices") or ()
        for name in device.get("attributes") or ()
    }


def _value(device: Object, name: str) -> Any:
    return next(iter((device.get("attributes") or {}).get(name, {}).values()), None)
