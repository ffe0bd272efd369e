"""Says in words how a shared device is shared, and what a claim that asks for nothing gets of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.devices.memory_limits import BY_CGROUP
from driver.devices.sharing import MEMORY, SHARES, split_shared_suffix
from kubernetes_rules.quantity import format_bytes

if TYPE_CHECKING:
    from driver.devices.device import Device
    from driver.devices.sharing import Strategy

STRATEGIES: dict[Strategy, str] = {"TimeSlicing": "time-slicing", "MPS": "MPS"}
"""The strategies as people write them."""

_GIB = 2**30


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
