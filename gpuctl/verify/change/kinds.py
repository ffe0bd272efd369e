"""The kinds of claims that are tried on a GPU: what each asks for, and what its containers may expect. Pure.

The driver's own slices say which kinds a GPU has: what is published there can be asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from driver.devices.names import DRIVER_NAME
from driver.devices.sharing import MEMORY
from driver.hardware.gpu import Gpu
from kubernetes_rules.quantity import parse_quantity

Object = dict[str, Any]

SHARES = 2
"""Into how many shares the GPU is divided, by either strategy."""

_ADDRESS = "resource.kubernetes.io/pciBusID"
_MIB = 1 << 20
_SLACK_BYTES = 64 * _MIB
_LEAST_OF_SHARE = 0.8
"""CUDA's own data takes memory of a share as well, up to some hundred MiB for each process."""
_TOTAL_LESS, _TOTAL_MORE = 0.90, 1.02
"""CUDA reports less memory than NVML, which counts what the NVIDIA driver keeps: 1 to 6 percent."""

Form = Literal["whole", "partition", "time-slicing", "mps", "memory-limits", "passthrough"]


@dataclass(frozen=True, slots=True)
class Expected:
    """What a CUDA process sees: the memory of its device in bytes, and how much of it it can get.

    ``total_bytes`` is None if it says nothing, as for a share. Without ``share_bytes`` the process gets what
    others have left, and does not try to get all of it. ``mps`` is whether it is a client of MPS.
    """

    total_bytes: int | None = None
    share_bytes: int | None = None
    mps: bool = False

    def wrong(
        self, total_bytes: int, allocated_bytes: int, *, under_mps: bool | None = None
    ) -> tuple[str, ...]:
        """What is not as expected of the memory that a process saw and that it got, and of MPS.

        ``under_mps`` is None if CUDA could not say whether it is under MPS.
        """
        found = []
        # A process that does not reach the daemon goes on without MPS, and without a word.
        if self.mps and under_mps is False:
            found.append("CUDA did not reach the MPS daemon, and runs without it")
        if self.total_bytes is not None:
            least, most = self.total_bytes * _TOTAL_LESS, self.total_bytes * _TOTAL_MORE
            if not least <= total_bytes <= most:
                found.append(f"CUDA sees {mib(total_bytes)} of memory, not about {mib(self.total_bytes)}")
        if self.share_bytes is not None:
            share = mib(self.share_bytes)
            if allocated_bytes > self.share_bytes * _TOTAL_MORE + _SLACK_BYTES:
                found.append(f"a process got {mib(allocated_bytes)} of memory, more than its {share}")
            if allocated_bytes < self.share_bytes * _LEAST_OF_SHARE:
                found.append(f"a process got only {mib(allocated_bytes)} of memory of its {share}")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of claim. ``name`` is the name of its check.

    ``attributes`` select its device, by their names as in selectors; a value None means that the device
    lacks the attribute. ``claims`` is how many claims have a device of this kind at once. ``why_not`` says
    why the GPU does not have it, empty if it does.
    """

    name: str
    form: Form
    attributes: Mapping[str, str | None]
    expected: Expected
    claims: int = 2
    interval: str = ""
    why_not: str = ""

    @property
    def class_name(self) -> str:
        """The name of its DeviceClass."""
        return f"verify-{self.name.replace('.', '-').replace('+', '-')}"

    def device_class(self, gpu: Gpu) -> Object:
        """The DeviceClass that selects its device of this GPU and no other."""
        wanted = {_ADDRESS: str(gpu.pci), **self.attributes}
        tests = [f"device.driver == '{DRIVER_NAME}'", *(_test(*one) for one in wanted.items())]
        spec: Object = {"selectors": [{"cel": {"expression": " && ".join(tests)}}]}
        if self.interval:
            sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": self.interval}}
            parameters = {
                "apiVersion": "resource.nvidia.com/v1beta1",
                "kind": "GpuConfig",
                "sharing": sharing,
            }
            spec["config"] = [{"opaque": {"driver": DRIVER_NAME, "parameters": parameters}}]
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": self.class_name},
            "spec": spec,
        }


def node_config(gpu: Gpu, *, passthrough: bool) -> Object:
    """The node configuration that offers this GPU in every form that it may have, and hides all others."""
    is_guest = gpu.virtualization == "vgpu"
    offered: Object = {"when": f'gpu.pciBusID == "{gpu.pci}"', "offer": "whole"}
    strategies = ("TimeSlicing",) if is_guest else ("TimeSlicing", "MPS")
    offered["shared"] = [{"strategy": one, "shares": SHARES} for one in strategies]
    if gpu.mig is not None and not is_guest:
        names = dict.fromkeys(one.profile.name for one in gpu.mig.profiles)
        offered["mig"] = {"dynamic": {"profiles": list(names)}}
    if passthrough and not is_guest:
        offered["passthrough"] = True
    return {"version": "v1", "rules": [offered, {"offer": "hidden"}]}


def kinds_of(gpu: Gpu, devices: Sequence[Object], *, no_passthrough: str) -> tuple[Kind, ...]:
    """The kinds in the order in which they are tried; ``devices`` are those of the driver's slices.

    ``no_passthrough`` says why that was not asked for, empty if it was.
    """
    whole: dict[str, str | None] = {"type": "gpu"}
    shared: dict[str, str | None] = {"type": "shared", "profile": None}
    slices = {**shared, "sharing": "time-slicing"}
    mps = {**shared, "sharing": "mps"}
    limits = {**slices, "memoryLimits": "cgroup"}
    vfio: dict[str, str | None] = {"type": "vfio"}
    no_mig = _text_of(devices, whole, "migWithheld") or "the GPU has no MIG"
    no_limits = _text_of(devices, shared, "memoryLimitsWithheld") or "needs NVIDIA driver R615"
    in_mig = "the GPU is in MIG mode, which does not change without a reset"
    no_whole = in_mig if gpu.mig_enabled else ""
    share = _share_bytes(devices, mps)
    memory = gpu.memory_bytes
    # A process that is held to a limit may see that as all of the memory.
    limited = any(matches(one, limits) for one in devices)
    slice_memory = Expected(None if limited else memory)
    whole_memory = Expected(memory, memory and memory - (gpu.reserved_bytes or 0))
    found = [Kind("whole", "whole", whole, whole_memory, 1, why_not=no_whole)]
    profiles = () if gpu.mig is None else {one.profile.name: one.profile for one in gpu.mig.profiles}.values()
    for number, one in enumerate(profiles):
        # Two partitions side by side once, of the smallest profile: more of them take minutes.
        claims = 2 if number == 0 and one.most_instances > 1 else 1
        expected = Expected(one.memory_bytes, one.memory_bytes)
        attributes: dict[str, str | None] = {"type": "mig", "profile": one.name}
        found.append(Kind(f"mig-{one.name}", "partition", attributes, expected, claims, why_not=no_mig))
    if not profiles:
        found.append(Kind("mig", "partition", {"type": "mig"}, Expected(), 1, why_not=no_mig))
    found += [
        Kind("time-slicing", "time-slicing", slices, slice_memory, 2, "Long", why_not=no_whole),
        Kind("mps", "mps", mps, Expected(share_bytes=share, mps=True), why_not=no_whole),
        Kind(
            "memory-limits",
            "memory-limits",
            limits,
            Expected(share_bytes=_share_bytes(devices, limits)),
            why_not=no_limits,
        ),
        Kind("passthrough", "passthrough", vfio, Expected(), 1, why_not=no_passthrough),
    ]
    return tuple(_offered(one, devices) for one in found)


def _offered(kind: Kind, devices: Sequence[Object]) -> Kind:
    """The kind, with a reason only if none of the devices is of it."""
    if any(matches(device, kind.attributes) for device in devices):
        return replace(kind, why_not="")
    return replace(kind, why_not=kind.why_not or "the driver does not offer this GPU in this form")


def matches(device: Object, attributes: Mapping[str, str | None]) -> bool:
    """Whether a device of a slice has these attributes."""
    found = device.get("attributes") or {}
    return all(_value(found, name) == value for name, value in attributes.items())


def mib(size_bytes: int) -> str:
    """A size for messages."""
    return f"{size_bytes // _MIB} MiB"


def _value(found: Mapping[str, Any], name: str) -> str | None:
    for written in (name, f"{DRIVER_NAME}/{name}"):
        for value in (found.get(written) or {}).values():
            return str(value)
    return None


def _text_of(devices: Iterable[Object], attributes: Mapping[str, str | None], name: str) -> str:
    chosen = (one for one in devices if matches(one, attributes))
    return next((text for one in chosen if (text := _value(one.get("attributes") or {}, name))), "")


def _share_bytes(devices: Iterable[Object], attributes: Mapping[str, str | None]) -> int | None:
    """What one share of the device has; None if there is no such device."""
    for one in devices:
        if matches(one, attributes):
            capacity = one.get("capacity") or {}
            memory = capacity.get(MEMORY) or capacity.get(f"{DRIVER_NAME}/{MEMORY}") or {}
            return int(parse_quantity(str(memory["value"]))) // SHARES if "value" in memory else None
    return None


def _test(name: str, value: str | None) -> str:
    domain, _, short = name.rpartition("/")
    place = f"device.attributes['{domain or DRIVER_NAME}']"
    if value is None:
        return f"!('{short}' in {place})"
    return f"'{short}' in {place} && {place}.{short} == '{value}'"
