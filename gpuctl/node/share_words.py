"""Says in words how a shared device is shared, and what a claim that asks for nothing gets of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.devices.sharing import MEMORY, SHARES, split_shared_suffix
from kubernetes_rules.quantity import format_bytes

if TYPE_CHECKING:
    from driver.devices.device import Device
    from driver.devices.sharing import Strategy

STRATEGIES: dict[Strategy, str] = {"TimeSlicing": "time-slicing", "MPS": "MPS"}
"""The strategies as people write them."""

_GIB = 2**30


def share_words(device: Device) -> str | None:
    """``MPS: 4 shares of 19.9 GiB``, ``time-slicing: 4 shares``; None for a device that is not shared.

    A fractional device begins with ``whole``, which is what a claim gets that asks for no amount.
    """
    _, form = split_shared_suffix(device.name)
    if form is None:
        return None
    words = " with ".join(part for part in (_shares(device, form.strategy), _memory(device)) if part)
    return f"{STRATEGIES[form.strategy]}: {'whole or ' if form.fractional else ''}{words or 'shared'}"


def _shares(device: Device, strategy: Strategy) -> str:
    """Only MPS holds a share to its part of the memory."""
    shares, memory_bytes = device.capacity.get(SHARES), device.capacity.get(MEMORY)
    if not shares:
        return ""
    if memory_bytes is None or strategy != "MPS" or _step(device) is not None:
        return f"{shares} shares"
    return f"{shares} shares of {memory_bytes / shares / _GIB:.1f} GiB"


def _memory(device: Device) -> str:
    step = _step(device)
    if step is None:
        return ""
    default = device.policies[MEMORY].default
    unasked = f" ({format_bytes(default)} unless asked)" if SHARES in device.capacity else ""
    return f"memory in steps of {format_bytes(step)}{unasked}"


def _step(device: Device) -> int | None:
    policy = device.policies.get(MEMORY)
    return policy.step if policy else None
