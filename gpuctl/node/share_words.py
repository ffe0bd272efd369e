"""Says how a shared device is shared, and whether the NVIDIA driver holds containers to its memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from driver.devices.device import Device
from driver.devices.memory_limits import BY_CGROUP, FIRST_DRIVER, LIMITS_WITHHELD, MEMORY_LIMITS
from driver.devices.sharing import MEMORY, SHARES, Strategy, split_shared_suffix
from kubernetes_rules.quantity import format_bytes

STRATEGIES: dict[Strategy, str] = {"TimeSlicing": "time-slicing", "MPS": "MPS"}
"""The strategies as people write them."""

_GIB = 2**30

Object = Mapping[str, Any]


def share_words(device: Device) -> str | None:
    """``MPS: 4 shares of 19.8 GiB``, ``time-slicing: 4 shares``; None for a device that is not shared.

    A fractional device begins with ``whole``, which is what a claim gets that asks for no amount. Time-sliced
    memory says whether anybody holds a share to it; MPS always does.
    """
    _, form = split_shared_suffix(device.name)
    if form is None:
        return None
    words = " with ".join(part for part in (_shares(device, form.strategy), _memory(device)) if part)
    held = ", held" if _is_limited(device) and form.strategy != "MPS" and form.memory else ""
    return f"{STRATEGIES[form.strategy]}: {'whole or ' if form.fractional else ''}{words or 'shared'}{held}"


def _shares(device: Device, strategy: Strategy) -> str:
    """Only MPS, or the NVIDIA driver itself, holds a share to its part of the memory."""
    shares, memory_bytes = device.capacity.get(SHARES), device.capacity.get(MEMORY)
    if not shares:
        return ""
    held = strategy == "MPS" or _is_limited(device)
    if memory_bytes is None or not held or _step(device) is not None:
        return f"{shares} shares"
    return f"{shares} shares of {memory_bytes / shares / _GIB:.1f} GiB"


def _memory(device: Device) -> str:
    step = _step(device)
    if step is None:
        return ""
    default, least = device.policies[MEMORY].default, device.policies[MEMORY].minimum
    unasked = f" ({format_bytes(default)} unless asked)" if SHARES in device.capacity else ""
    from_least = f"from {format_bytes(least)} " if least > step else ""
    return f"memory {from_least}in steps of {format_bytes(step)}{unasked}"


def _is_limited(device: Device) -> bool:
    return device.attributes.get("memoryIsolation") == BY_CGROUP


def _step(device: Device) -> int | None:
    policy = device.policies.get(MEMORY)
    return policy.step if policy else None


def why_not_limited(device: Object) -> str | None:
    """Why the NVIDIA driver holds nobody to memory of a device, as far as is known; None where it does."""
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
