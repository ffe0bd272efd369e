"""Claims with shares of a GPU whose memory is limited, and what their containers use."""

from dataclasses import replace
from typing import Any

from tests.plugin import ContainerMemory, Entry, HeldDevice, ShareRecord

GIB = 1 << 30
PCI, UUID, GROUP = "0000:8a:00.0", "GPU-1", "gpu-0000-8a-00-0"
DEVICE = f"{GROUP}-ts-8-mem"


def share(uid: str, limit_bytes: int = 10 * GIB, **changed: Any) -> HeldDevice:
    """A time-sliced share of a GPU that the NVIDIA driver holds the claim to."""
    made = HeldDevice(
        *("gpu", "pool", DEVICE, PCI, UUID, f"{uid}-{DEVICE}", f"share-{uid}"),
        kind="whole",
        share=ShareRecord(GROUP, "TimeSlicing", memory_bytes=limit_bytes),
        memory_limit_bytes=limit_bytes,
    )
    return replace(made, **changed)


def claim(uid: str, *devices: HeldDevice) -> Entry:
    """A prepared claim of the namespace ``team``, called as its UID."""
    return Entry(uid, "team", uid, "prepared", 7, devices or (share(uid),))


def container(
    uid: str, used_bytes: int | None, name: str = "main", pod: str = "pod", hard_bytes: int = 5 * GIB
) -> ContainerMemory:
    """A live container of such a claim."""
    return ContainerMemory(uid, f"{uid}-{DEVICE}", "team", pod, name, hard_bytes, used_bytes)
