"""Says how a shared device is shared, and whether the NVIDIA driver holds containers to its memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from driver.devices.device import Device
from driver.devices.memory_limits import BY_CGROUP, FIRST_DRIVER, LIMITS_WITHHELD, MEMORY_LIMITS
from driver.devices.sharing import MEMORY, SHARES, Strategy, split_shared_suffix
from gpuctl.fleet.devices import Object, attribute, driver_version_text
from kubernetes_rules.quantity import format_bytes

STRATEGIES: dict[Strategy, str] = {"TimeSlicing": "time-slicing", "MPS": "MPS"}
"""The strategies as people write them."""

_GIB = 2**30


def share_words(device: Device) -> str | None:
    """``MPS: 4 shares of 19.8 GiB``, ``time-slicing: 4 shares``; None for a device that is not shared."""
    _, form = split_shared_suffix(device.name)
    if form is None:
        return None
    words = " with ".join(part for part in (_shares(device, form.strategy), _memory(device)) if part)
    # MPS always enforces its limits, so only of time-sliced memory it is said.
    held = ", held" if _is_limited(device) and form.strategy != "MPS" and form.memory else ""
    # A claim that asks for no amount gets all of a fractional device.
    return f"{STRATEGIES[form.strategy]}: {'whole or ' if form.fractional else ''}{words or 'shared'}{held}"


def _shares(device: Device, strategy: Strategy) -> str:
    """``4 shares``, with their memory if MPS or the NVIDIA driver enforces it."""
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
    """Why the NVIDIA driver enforces no memory limits on a device, as far as is known; None if it does."""
    if attribute(device, MEMORY_LIMITS) is not None:
        return None
    withheld = attribute(device, LIMITS_WITHHELD)
    if withheld is not None:
        return str(withheld)
    if attribute(device, "profile") is not None:
        return "it is a partition, and NVML sets no limits on MIG devices"
    version = driver_version_text(str(attribute(device, "driverVersion") or ""))
    branch = version.partition(".")[0]
    if not branch.isdecimal():
        return "NVML could not be asked"
    if int(branch) < FIRST_DRIVER:
        return f"its NVIDIA driver {version} is older than R{FIRST_DRIVER}, the first with memory limits"
    return "NVML did not report whether it supports them: see the controller's log there"


def limits_lines(slices: Iterable[Object]) -> Iterator[str]:
    """Which whole GPUs of a node have memory limits, and why the others have none, a line for each reason.

    Nothing if no GPU is shared and no device says why its limits are withheld. GPUs are named by their
    indexes, as in nvidia-smi.
    """
    answers: dict[str | None, dict[str, None]] = {}
    shared = withheld = False
    for device in (device for one in slices for device in one["spec"].get("devices") or ()):
        withheld = withheld or attribute(device, LIMITS_WITHHELD) is not None
        if attribute(device, "profile") is None and attribute(device, "type") in ("gpu", "shared"):
            shared = shared or bool(device.get("allowMultipleAllocations"))
            label = str(attribute(device, "index"))
            answers.setdefault(why_not_limited(device), {})[label] = None  # a dict keeps the order
    for reason, gpus in answers.items():
        which = f"GPU {', '.join(gpus)}"
        if reason is None:
            yield f"memory limits: the NVIDIA driver enforces them on {which}"
        elif shared or withheld:
            yield f"no memory limits by the NVIDIA driver on {which}: {reason}"
