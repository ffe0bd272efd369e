"""A CUDA process on a fake machine sees the devices of its container, and has the memory that it may have."""

from fakegpu.machine.capabilities import partition_nodes
from tests.controller.mig_node import cut
from tests.driver.mig_machines import device
from tests.gpus import VISIBLE_NODES, CudaError, FakeCuda, FakeMachine


def seen(machine: FakeMachine, **environment: str) -> list[str]:
    """The UUIDs of the devices that a process sees; empty without any."""
    cuda = FakeCuda(machine, environment)
    try:
        cuda.init()
    except CudaError as error:
        assert error.name == "CUDA_ERROR_NO_DEVICE"
        return []
    return [cuda.uuid(cuda.device(ordinal)) for ordinal in range(cuda.device_count())]


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
    machine = FakeMachine.open("hgx-h100")
    for start in (0, 1):
        cut(machine, 0, slices=1, start=start)
    first, second = device(machine).mig_devices()
    uuids = [first.uuid, second.uuid]
    nodes = ":".join(partition_nodes(0, second.gpu_instance_id, second.compute_instance_id))
    assert seen(machine) == uuids[:1]
    assert seen(machine, CUDA_VISIBLE_DEVICES=uuids[1]) == uuids[1:]
    assert seen(machine, **{VISIBLE_NODES: f"/dev/nvidia0:{nodes}"}) == uuids[1:]
    assert seen(machine, **{VISIBLE_NODES: "/dev/nvidia0"}) == []
