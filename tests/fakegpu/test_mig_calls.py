"""MIG on a fake machine: modes and resets, who holds an instance, what survives what, and faults."""

import pytest

from driver.nvml.api import MigMode
from tests.gpus import FakeMachine, MigDevice, NvmlDevice, Placement


def gpu(machine: FakeMachine, index: int = 0) -> NvmlDevice:
    nvml = machine.nvml()
    nvml.init()
    return nvml.device_by_index(index)


def partition(device: NvmlDevice, profile_id: int, start: int) -> MigDevice:
    """A GPU instance with one compute instance that spans it."""
    size = device.gpu_instance_placements(profile_id)[0].size
    instance = device.create_gpu_instance(profile_id, Placement(start, size))
    device.create_compute_instance(instance.id, device.compute_instance_profiles(instance.id)[-1].id)
    return next(mig for mig in device.mig_devices() if mig.gpu_instance_id == instance.id)


@pytest.mark.parametrize("ending", ["reset", "reboot", "driver"])
@pytest.mark.parametrize("machine", ["a30-quad", "hgx-b200"])
def test_no_instance_outlives_a_reset_a_reboot_or_the_driver(machine: str, ending: str) -> None:
    """Only Ampere keeps the mode over a new load of the driver."""
    fake = FakeMachine.open(machine)
    gpu(fake).set_mig_mode(True)
    fake.reset(0)
    first, *_ = gpu(fake).gpu_instance_profiles()
    partition(gpu(fake), first.id, 0)
    match ending:
        case "reset":
            fake.reset(0)
        case "reboot":
            fake.reboot()
        case "driver":
            fake.driver_gone()
            fake.driver_back()
    stays = ending == "reset" or machine == "a30-quad"
    assert gpu(fake).mig_mode() == MigMode(enabled=stays, pending=stays)
    assert gpu(fake).mig_devices() == ()
