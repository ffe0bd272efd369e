"""Sets limits through NVML and reads them back, in the lane of each GPU."""

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
from kubeletplugin.sharing.memory.division import MIB, Portion

_ROUNDING_BYTES = 256 * MIB
"""By so much NVML may hold more than it was asked for, since it counts in units of its own."""

_MOST_REMEMBERED = 1024
"""Of so many limits it is remembered how NVML rounded them; one that is forgotten is set once more."""


class NotHeld(ClaimBlocked):
    """NVML took a limit and does not hold it."""


class GpuLimits:
    """The limits of control groups, on the GPUs of one node. Raises NvmlError throughout.

    ``generation()`` tells one load of the NVIDIA driver from the next, empty where that is not known.
    """

    def __init__(self, discovery: Discovery, generation: Callable[[], str]) -> None:
        self._discovery = discovery
        self._generation = generation
        self._supported: dict[str, tuple[str, bool]] = {}
        self._rounded: OrderedDict[tuple[str, str, Portion], Portion] = OrderedDict()

    def supports(self, pci: str) -> bool:
        """Whether the GPU at this address takes limits; asked once for each load of its driver."""
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
        """The limits of groups, by path, with what they use; None where a group has none.

        Groups that are gone are left out.
        """
        paths = tuple(dict.fromkeys(cgroups))
        return self._discovery.on_gpu(PciAddress.parse(pci), _all_of(paths)) if paths else {}

    def glance(self, pci: str, cgroups: Iterable[str]) -> dict[str, MemoryLimits | None]:
        """As ``read``, in a lane of its own and for less long: whoever sets limits never waits for it."""
        paths, address = tuple(dict.fromkeys(cgroups)), PciAddress.parse(pci)
        if not paths:
            return {}
        found = self._discovery.read({address: _all_of(paths)})[address]
        if isinstance(found, NvmlCallFailed):
            raise found
        return found

    def hold(self, pci: str, cgroup: str, portion: Portion) -> MemoryLimits:
        """Set the limits of a group and read them back, with what it uses.

        Less than was asked for is held as well. Where NVML rounds up it is asked for so much less. Raises
        NotHeld where it then still holds more, or nothing.
        """

        def job(device: NvmlDevice, watch: Watch) -> MemoryLimits | None:
            told = _set(device, watch, cgroup, portion.soft_bytes, portion.hard_bytes)
            over = told.hard_bytes - portion.hard_bytes if told is not None else 0
            if 0 < over <= min(_ROUNDING_BYTES, portion.hard_bytes):
                hard_bytes = portion.hard_bytes - over
                told = _set(device, watch, cgroup, min(portion.soft_bytes, hard_bytes), hard_bytes)
            return told

        told = self._discovery.on_gpu(PciAddress.parse(pci), job)
        if told is None or told.hard_bytes > portion.hard_bytes:
            held = "none" if told is None else f"{told.hard_bytes} bytes"
            raise NotHeld(
                f"NVML took a limit of {portion.hard_bytes} bytes for a container on GPU {pci} and holds "
                f"{held}, so the container could take the memory of others",
                "look for NVIDIA messages in the kernel log; restart the node if it lasts",
                for_log=cgroup,
            )
        self._remember((pci, cgroup, portion), Portion(told.soft_bytes, told.hard_bytes))
        return told

    def is_held(self, pci: str, cgroup: str, portion: Portion, told: MemoryLimits | None) -> bool:
        """Whether what NVML tells of a group is what it made of the portion, which it may have rounded."""
        if told is None:
            return False
        return Portion(told.soft_bytes, told.hard_bytes) in (
            portion,
            self._rounded.get((pci, cgroup, portion)),
        )

    def _remember(self, asked: tuple[str, str, Portion], told: Portion) -> None:
        if told != asked[2]:
            self._rounded[asked] = told
            self._rounded.move_to_end(asked)
            if len(self._rounded) > _MOST_REMEMBERED:
                self._rounded.popitem(last=False)


def _set(
    device: NvmlDevice, watch: Watch, cgroup: str, soft_bytes: int, hard_bytes: int
) -> MemoryLimits | None:
    try:
        watch("set_memory_limits", lambda: device.set_memory_limits(cgroup, soft_bytes, hard_bytes))
    except NotFound as error:
        if error.code != Code.NOT_FOUND:
            raise
        raise ClaimBlocked(
            "NVML finds no place for a limit in the container's control group: its controller dmem is not "
            "enabled there, or the group is gone",
            "see that the container runtime enables the controllers of the containers that it makes",
            for_log=cgroup,
        ) from error
    return _read(device, watch, cgroup)


def _all_of(paths: Iterable[str]) -> Callable[[NvmlDevice, Watch], dict[str, MemoryLimits | None]]:
    """The job that reads the limits of groups."""

    def job(device: NvmlDevice, watch: Watch) -> dict[str, MemoryLimits | None]:
        found: dict[str, MemoryLimits | None] = {}
        for path in paths:
            try:
                found[path] = _read(device, watch, path)
            except NvmlCallFailed as error:
                if error.code != Code.OPERATING_SYSTEM:
                    raise
        return found

    return job


def _read(device: NvmlDevice, watch: Watch, cgroup: str) -> MemoryLimits | None:
    """The limits of a group; None if it has none.

    If the NVIDIA driver counts by itself, it may say NOT_SUPPORTED for a group without limits (see
    ``limits_probe``). Setting limits then shows whether they are supported.
    """
    try:
        return watch("memory_limits", lambda: device.memory_limits(cgroup))
    except NoMemoryLimits:
        return None
    except NotSupported as error:
        if error.code == Code.FUNCTION_NOT_FOUND:
            raise
        return None
