"""What every NVML must do about memory limits; never on a real GPU: groups are containers."""

from collections.abc import Callable

import pytest

from driver.nvml.api import NotFound
from tests.gpus import (
    NO_LIMIT_BYTES,
    Code,
    MemoryLimits,
    NoMemoryLimits,
    NotSupported,
    Nvml,
    NvmlCallFailed,
    NvmlDevice,
)

MakeGroup = Callable[[str], str]
"""Makes the control group at a path, as a runtime does; gives its full path."""

ROOT = "/sys/fs/cgroup"
GIB = 2**30


def devices_of(nvml: Nvml) -> list[NvmlDevice]:
    """All GPUs, in a new session."""
    nvml.init()
    return [nvml.device_by_index(index) for index in range(nvml.device_count())]


def _limited(nvml: Nvml) -> list[NvmlDevice]:
    """The GPUs that have memory limits."""
    devices = devices_of(nvml)
    if int(nvml.driver_version().split(".")[0]) < 615:
        return []
    return [device for device in devices if device.virtualization() != "vgpu" and not has_mig_on(device)]


def has_mig_on(device: NvmlDevice) -> bool:
    """Whether a GPU is in MIG mode."""
    try:
        return device.mig_mode().enabled
    except NotSupported:
        return False


def tells_by_the_root_whether_there_are_limits(nvml: Nvml, _: MakeGroup) -> None:
    limited = {device.pci() for device in _limited(nvml)}
    for device in devices_of(nvml):
        with pytest.raises(NotFound if device.pci() in limited else NotSupported):
            device.memory_limits(ROOT)


def sets_nothing_where_there_are_no_limits(nvml: Nvml, make: MakeGroup) -> None:
    limited = {device.pci() for device in _limited(nvml)}
    for device in devices_of(nvml):
        if device.pci() not in limited:
            with pytest.raises(NotSupported):
                device.set_memory_limits(make("/a"), 0, GIB)


def a_group_has_no_limits_until_they_are_set(nvml: Nvml, make: MakeGroup) -> None:
    for device in _limited(nvml):
        with pytest.raises(NoMemoryLimits):
            device.memory_limits(make("/a"))


def keeps_limits_until_they_are_set_again(nvml: Nvml, make: MakeGroup) -> None:
    group = make("/kubepods/pod1/a")
    for device in _limited(nvml):
        for soft, hard in ((GIB, 2 * GIB), (0, GIB), (GIB, GIB), (0, 0), (GIB, NO_LIMIT_BYTES)):
            device.set_memory_limits(group, soft, hard)
            assert device.memory_limits(group) == MemoryLimits(soft, hard)
            assert nvml.device_by_pci(device.pci()).memory_limits(group) == MemoryLimits(soft, hard)


def takes_all_of_the_gpu_and_no_byte_more(nvml: Nvml, make: MakeGroup) -> None:
    group = make("/a")
    for device in _limited(nvml):
        everything = device.memory_bytes()
        device.set_memory_limits(group, everything, everything)
        for soft, hard in ((0, everything + 1), (everything + 1, NO_LIMIT_BYTES), (2, 1)):
            with pytest.raises(NvmlCallFailed) as caught:
                device.set_memory_limits(group, soft, hard)
            assert caught.value.code == Code.INVALID_ARGUMENT
        assert device.memory_limits(group) == MemoryLimits(everything, everything)


def clears_limits(nvml: Nvml, make: MakeGroup) -> None:
    group = make("/a")
    for device in _limited(nvml):
        device.set_memory_limits(group, GIB, GIB)
        for _ in range(2):
            device.set_memory_limits(group, 0, NO_LIMIT_BYTES)
            with pytest.raises(NoMemoryLimits):
                device.memory_limits(group)


def limits_one_group_on_one_gpu(nvml: Nvml, make: MakeGroup) -> None:
    group, sister = make("/pod/a"), make("/pod/ab")
    devices = _limited(nvml)
    for device in devices[:1]:
        device.set_memory_limits(group, 0, GIB)
        device.set_memory_limits(sister, 0, 2 * GIB)
        assert device.memory_limits(group).hard_bytes == GIB
        device.set_memory_limits(group, 0, NO_LIMIT_BYTES)
        assert device.memory_limits(sister).hard_bytes == 2 * GIB
    for other in devices[1:]:
        with pytest.raises(NoMemoryLimits):
            other.memory_limits(sister)


def refuses_a_group_that_is_not_there(nvml: Nvml, _: MakeGroup) -> None:
    for device in _limited(nvml):
        for name, limits in (("memory_limits", ()), ("set_memory_limits", (0, GIB))):
            with pytest.raises(NvmlCallFailed, match=f" for {ROOT}/gone failed") as caught:
                getattr(device, name)(f"{ROOT}/gone", *limits)
            assert caught.value.code == Code.OPERATING_SYSTEM


MEMORY_CLAUSES: tuple[Callable[[Nvml, MakeGroup], None], ...] = (
    tells_by_the_root_whether_there_are_limits,
    sets_nothing_where_there_are_no_limits,
    a_group_has_no_limits_until_they_are_set,
    keeps_limits_until_they_are_set_again,
    takes_all_of_the_gpu_and_no_byte_more,
    clears_limits,
    limits_one_group_on_one_gpu,
    refuses_a_group_that_is_not_there,
)
