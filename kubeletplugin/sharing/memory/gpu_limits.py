"""Sets the memory limits of control groups through NVML, and reads them back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from driver.errors import ClaimBlocked
from driver.hardware.inventory import Discovery
from driver.nvml.api import Code, NoMemoryLimits, NotFound, NotSupported, NvmlCallFailed, NvmlDevice
from driver.nvml.deadline import Watch
from driver.nvml.limits_probe import can_be_limited, shareable_bytes
from driver.nvml.memory_limits import MemoryLimits
from driver.nvml.pci_address import PciAddress

MIB = 1 << 20

# NVML may round a limit up to units of its own. A limit that is higher by more than this counts as not held.
_ROUNDING_BYTES = 256 * MIB
# How many rounded limits are remembered. One that is forgotten is only set once more.
_MOST_REMEMBERED = 1024


class NotHeld(ClaimBlocked):
    """NVML accepted a limit, but reads back a higher one or none."""


class GpuLimits:
    """The memory limits of control groups on one node's GPUs. Every method may raise NvmlError.

    ``generation()`` differs between loads of the NVIDIA driver; it is empty if unknown.
    """

    def __init__(self, discovery: Discovery, generation: Callable[[], str]) -> None:
        self._discovery = discovery
        self._generation = generation
        self._supported: dict[str, tuple[str, bool]] = {}
        self._rounded: OrderedDict[tuple[str, str, int], int] = OrderedDict()

    def supports(self, pci: str) -> bool:
        """Whether the NVIDIA driver can limit memory on this GPU, asked once per load of the driver."""
        generation = self._generation()
        known = self._supported.get(pci)
        if known is not None and generation and known[0] == generation:
            return known[1]
        found = self._discovery.on_gpu(PciAddress.parse(pci), can_be_limited)
        self._supported[pci] = generation, found
        return found

    def shareable_bytes(self, pci: str) -> int:
        """The memory of a GPU that claims can divide among them."""
        return self._discovery.on_gpu(PciAddress.parse(pci), shareable_bytes)

    def read(self, pci: str, cgroups: Iterable[str]) -> dict[str, MemoryLimits | None]:
        """The limits of groups and what they use, by path; None if a group has no limits.

        Groups that are gone are left out.
        """
        paths = tuple(dict.fromkeys(cgroups))
        return self._discovery.on_gpu(PciAddress.parse(pci), _reading(paths)) if paths else {}

    def read_beside(self, pci: str, cgroups: Iterable[str]) -> dict[str, MemoryLimits | None]:
        """As ``read``, but with a shorter timeout, and callers that set limits do not wait for it."""
        paths, address = tuple(dict.fromkeys(cgroups)), PciAddress.parse(pci)
        if not paths:
            return {}
        found = self._discovery.read({address: _reading(paths)})[address]
        if isinstance(found, NvmlCallFailed):
            raise found
        return found

    def hold(self, pci: str, cgroup: str, hard_bytes: int) -> MemoryLimits:
        """Set the hard limit of a group and read it back, with what the group uses.

        The result may be lower than ``hard_bytes``, never higher: then NotHeld is raised.
        """

        def job(device: NvmlDevice, watch: Watch) -> MemoryLimits | None:
            limits = _set(device, watch, cgroup, hard_bytes)
            over = limits.hard_bytes - hard_bytes if limits is not None else 0
            # NVML rounded up. With so much less it rounds to the limit or below.
            if 0 < over <= min(_ROUNDING_BYTES, hard_bytes):
                limits = _set(device, watch, cgroup, hard_bytes - over)
            return limits

        limits = self._discovery.on_gpu(PciAddress.parse(pci), job)
        if limits is None or limits.hard_bytes > hard_bytes:
            held = "none" if limits is None else f"{limits.hard_bytes} bytes"
            raise NotHeld(
                f"NVML accepted a limit of {hard_bytes} bytes for a container on GPU {pci} but "
                f"reports {held}, so the container could take the memory of others",
                "look for NVIDIA messages in the kernel log; restart the node if this lasts",
                for_log=cgroup,
            )
        if limits.hard_bytes != hard_bytes:
            key = (pci, cgroup, hard_bytes)
            self._rounded[key] = limits.hard_bytes
            self._rounded.move_to_end(key)
            if len(self._rounded) > _MOST_REMEMBERED:
                self._rounded.popitem(last=False)
        return limits

    def is_held(self, pci: str, cgroup: str, hard_bytes: int, limits: MemoryLimits | None) -> bool:
        """Whether the limit that NVML read back is this one, perhaps rounded by NVML."""
        return limits is not None and limits.hard_bytes in (
            hard_bytes,
            self._rounded.get((pci, cgroup, hard_bytes)),
        )


def _set(device: NvmlDevice, watch: Watch, cgroup: str, hard_bytes: int) -> MemoryLimits | None:
    # No soft limit: it reserves nothing, and if a group is deleted, its soft limit stays counted in the
    # groups above it for ever (NVIDIA's "MPS v3 Memory Partitioning").
    try:
        watch("set_memory_limits", lambda: device.set_memory_limits(cgroup, 0, hard_bytes))
    except NotFound as error:
        # GPU_NOT_FOUND is a NotFound, too.
        if error.code != Code.NOT_FOUND:
            raise
        raise ClaimBlocked(
            "NVML cannot set a limit for the container's control group: its controller dmem is not "
            "enabled, or the group is gone",
            "check that the container runtime enables the controllers for its containers",
            for_log=cgroup,
        ) from error
    return _read(device, watch, cgroup)


def _reading(paths: Iterable[str]) -> Callable[[NvmlDevice, Watch], dict[str, MemoryLimits | None]]:
    """A job for a GPU that reads the limits of groups."""

    def job(device: NvmlDevice, watch: Watch) -> dict[str, MemoryLimits | None]:
        found: dict[str, MemoryLimits | None] = {}
        for path in paths:
            try:
                found[path] = _read(device, watch, path)
            # OPERATING_SYSTEM: NVML cannot open the group's folder, so the container has ended.
            except NvmlCallFailed as error:
                if error.code != Code.OPERATING_SYSTEM:
                    raise
        return found

    return job


def _read(device: NvmlDevice, watch: Watch, cgroup: str) -> MemoryLimits | None:
    """The limits of a group, None if it has none."""
    try:
        return watch("memory_limits", lambda: device.memory_limits(cgroup))
    except NoMemoryLimits:
        return None
    except NotSupported as error:
        # The library has no such function: the driver is older than R615.
        if error.code == Code.FUNCTION_NOT_FOUND:
            raise
        # Without the kernel's dmem controller the driver may answer NOT_SUPPORTED for a group without limits
        # (see limits_probe). Setting limits then shows whether they are supported.
        return None
