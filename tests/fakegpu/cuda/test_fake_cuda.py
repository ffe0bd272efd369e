"""A CUDA process on a fake machine sees the devices of its container, and has the memory that it may have."""

import os
from pathlib import Path

import pytest

from fakegpu.machine.capabilities import partition_nodes
from tests.fakegpu.programs import Programs
from tests.gpus import VISIBLE_NODES, CudaError, FakeCuda, FakeDevice, FakeMachine

GIB = 1 << 30


def gpu(machine: FakeMachine, index: int) -> FakeDevice:
    nvml = machine.nvml()
    nvml.init()
    return nvml.device_by_index(index)


def seen(machine: FakeMachine, **environment: str) -> list[str]:
    """The UUIDs of the devices that a process sees; empty without any."""
    cuda = FakeCuda(machine, environment)
    try:
        cuda.init()
    except CudaError as error:
        assert error.name == "CUDA_ERROR_NO_DEVICE"
        return []
    return [cuda.uuid(cuda.device(ordinal)) for ordinal in range(cuda.device_count())]


def partitioned() -> tuple[FakeMachine, list[str]]:
    """Eight H100, two partitions on the first; and their UUIDs."""
    machine = FakeMachine.open("hgx-h100")
    first = gpu(machine, 0)
    first.set_mig_mode(True)
    profile = next(one for one in first.gpu_instance_profiles() if one.name == "1g.10gb")
    for placement in first.gpu_instance_placements(profile.id)[:2]:
        made = first.create_gpu_instance(profile.id, placement)
        first.create_compute_instance(made.id, first.compute_instance_profiles(made.id)[0].id)
    return machine, [one.uuid for one in first.mig_devices()]


def test_it_sees_the_gpus_of_its_nodes_of_which_the_variable_takes_some() -> None:
    machine = FakeMachine.open("l4-quad")
    uuids = [machine.uuid(machine.pci(index)) for index in range(4)]
    two = {VISIBLE_NODES: "/dev/nvidiactl:/dev/nvidia1:/dev/nvidia3"}
    assert seen(machine) == uuids
    assert seen(machine, **two) == [uuids[1], uuids[3]]
    assert seen(machine, **two, CUDA_VISIBLE_DEVICES="1,0") == [uuids[3], uuids[1]]
    assert seen(machine, **two, CUDA_VISIBLE_DEVICES=f"{uuids[3][:12]},{uuids[0]},0") == [uuids[3]]
    assert seen(machine, **two, CUDA_VISIBLE_DEVICES="") == []
    machine.driver_gone()
    assert seen(machine) == []


def test_it_sees_one_partition_at_most_and_no_whole_gpu_beside_it() -> None:
    machine, uuids = partitioned()
    second = gpu(machine, 0).mig_devices()[1]
    nodes = ":".join(partition_nodes(0, second.gpu_instance_id, second.compute_instance_id))
    assert seen(machine) == uuids[:1]
    assert seen(machine, CUDA_VISIBLE_DEVICES=uuids[1]) == uuids[1:]
    assert seen(machine, **{VISIBLE_NODES: f"/dev/nvidia0:{nodes}"}) == uuids[1:]
    assert seen(machine, **{VISIBLE_NODES: "/dev/nvidia0"}) == []


def test_mps_limits_its_memory_and_hides_what_the_daemon_does_not_serve(tmp_path: Path) -> None:
    programs = Programs(tmp_path, "dgx-a100")
    try:
        assert programs.control("-d", visible="2")[0] == 0
        programs.ask("set_default_device_pinned_mem_limit 0 10G")
        cuda = FakeCuda(programs.machine, programs.environment(None))
        cuda.init()
        assert (cuda.device_count(), cuda.uuid(0)) == (1, programs.uuid(2))
        cuda.enter(0)
        assert cuda.under_mps(0)
        (server,) = programs.ask("get_server_list")
        assert programs.ask(f"get_client_list {server}") == [str(os.getpid())]
        assert cuda.memory()[0] == 10 * GIB
        cuda.allocate(10 * GIB)
        with pytest.raises(CudaError, match="OUT_OF_MEMORY"):
            cuda.allocate(1)
        cuda.leave(0)
    finally:
        programs.end()
