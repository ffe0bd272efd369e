"""Fake and binding tell the same of how much of a GPU is used, and by whom."""

from collections.abc import Callable

import pytest

from driver.nvml.api import NotFound
from tests.driver.nvml.c_library import CLibrary, bound
from tests.gpus import FakeMachine, NotSupported, NvmlDevice, ProcessUse

Open = Callable[[FakeMachine], NvmlDevice]
MIB, GIB = 2**20, 2**30


def cut(machine: FakeMachine, parts: int = 2) -> None:
    """Put the first GPU in MIG mode, with a GPU instance of so many parts, and a small one."""
    nvml = machine.nvml()
    nvml.init()
    device = nvml.device_by_index(0)
    device.set_mig_mode(True)
    large = next(one for one in device.gpu_instance_profiles() if one.slices == 3)
    small = next(one for one in device.gpu_instance_profiles() if one.slices == 1)
    made = device.create_gpu_instance(large.id, device.gpu_instance_placements(large.id)[0])
    for _ in range(parts):
        device.create_compute_instance(made.id, 0)
    other = device.create_gpu_instance(small.id, device.gpu_instance_placements(small.id)[-1])
    device.create_compute_instance(other.id, 0)
    nvml.shutdown()


def test_partitions_share_the_memory_of_their_gpu_instance(ask: Open) -> None:
    machine = FakeMachine.open("hgx-h100")
    cut(machine)
    device = ask(machine)
    first, second, alone = device.mig_devices()
    machine.use(first.uuid, processes={5: GIB})
    machine.use(alone.uuid, used_bytes=3 * GIB)
    for part in (first, second):
        use = device.partition_memory_use(part.gpu_instance_id, part.compute_instance_id)
        assert (use.used_bytes, use.total_bytes) == (GIB, part.memory_bytes)
    use = device.partition_memory_use(alone.gpu_instance_id, alone.compute_instance_id)
    assert (use.used_bytes, use.total_bytes) == (3 * GIB, alone.memory_bytes)
    place = (first.gpu_instance_id, first.compute_instance_id)
    assert device.processes() == (ProcessUse(5, GIB, *place),)
    with pytest.raises(NotFound):
        device.partition_memory_use(first.gpu_instance_id, 7)


def test_the_second_sample_of_a_gpu_instance_tells_how_busy_it_was(ask: Open) -> None:
    machine = FakeMachine.open("hgx-h100")
    cut(machine, parts=1)
    device = ask(machine)
    large, small = device.mig_devices()
    for one in (large, small):
        with pytest.raises(NotSupported):
            device.partition_utilisation(one.gpu_instance_id)
    machine.use(large.uuid, compute=0.5)
    for _ in range(2):
        assert device.partition_utilisation(large.gpu_instance_id) == pytest.approx(0.5)
        assert device.partition_utilisation(small.gpu_instance_id) == 0


@pytest.mark.parametrize("frees", [True, False])
def test_samples_end_with_their_session(*, frees: bool) -> None:
    machine = FakeMachine.open("hgx-h100")
    cut(machine, parts=1)
    library = CLibrary(machine.nvml())
    library.frees = frees
    nvml = bound(library)
    for _ in range(2):
        nvml.init()
        device = nvml.device_by_index(0)
        gpu_instance = device.mig_devices()[0].gpu_instance_id
        with pytest.raises(NotSupported):
            device.partition_utilisation(gpu_instance)
        assert device.partition_utilisation(gpu_instance) == 0
        nvml.shutdown()
    assert len(library.samples) == 4
    assert (set(library.samples) == {"freed"}) == frees


def test_before_hopper_no_partition_tells_how_busy_it_is(ask: Open) -> None:
    machine = FakeMachine.open("dgx-a100")
    device = ask(machine)
    device.set_mig_mode(True)
    machine.reset(0)
    with pytest.raises(NotSupported):
        device.partition_utilisation(0)
