"""MIG on a fake machine: modes and resets, who holds an instance, what survives what, and faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from driver.errors import ConfigError
from driver.nvml.api import Code, MigMode, NvmlCallFailed, NvmlDevice
from driver.nvml.mig import MigDevice, MigProcess, Placement
from fakegpu.machine.fake_machine import FakeMachine

ONE_G, TWO_G, THREE_G, FOUR_G, SEVEN_G, ONE_G_ME, ONE_G_DOUBLE = 19, 14, 9, 5, 0, 20, 15


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


def refused(call: Callable[..., object], *arguments: object) -> int:
    with pytest.raises(NvmlCallFailed) as caught:
        call(*arguments)
    return caught.value.code


@pytest.fixture(params=["memory", "file"])
def hopper(request: pytest.FixtureRequest, tmp_path: Path) -> FakeMachine:
    """Eight H100 with MIG on on the first one, with the state in memory and in a file."""
    state = f"@{tmp_path / 'state.json'}" if request.param == "file" else ""
    machine = FakeMachine.open(f"fake:hgx-h100{state}")
    assert gpu(machine).set_mig_mode(True) == "done"
    return machine


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


def test_a_process_holds_its_compute_instance_and_is_named(hopper: FakeMachine) -> None:
    device = gpu(hopper)
    mig = partition(device, TWO_G, 2)
    hopper.set_processes(mig.uuid, (40, 4))
    place = (mig.gpu_instance_id, mig.compute_instance_id)
    assert device.mig_processes() == (MigProcess(4, *place), MigProcess(40, *place))
    assert device.process_ids() == (4, 40)
    assert refused(device.destroy_compute_instance, *place) == Code.IN_USE
    assert refused(device.destroy_gpu_instance, mig.gpu_instance_id) == Code.IN_USE
    hopper.set_processes(mig.uuid, ())
    device.destroy_compute_instance(*place)
    device.destroy_gpu_instance(mig.gpu_instance_id)
    with pytest.raises(ConfigError, match=mig.uuid):
        hopper.set_processes(mig.uuid, (1,))


def test_ids_and_uuids_belong_to_the_place(hopper: FakeMachine) -> None:
    device = gpu(hopper)
    ids = {}
    for profile_id, start in ((SEVEN_G, 0), (THREE_G, 0), (THREE_G, 4), (TWO_G, 4), (ONE_G, 0), (ONE_G, 6)):
        mig = partition(device, profile_id, start)
        ids[profile_id, start] = mig.gpu_instance_id
        device.destroy_compute_instance(mig.gpu_instance_id, 0)
        device.destroy_gpu_instance(mig.gpu_instance_id)
        assert partition(device, profile_id, start) == mig
        device.destroy_compute_instance(mig.gpu_instance_id, 0)
        device.destroy_gpu_instance(mig.gpu_instance_id)
    assert list(ids.values()) == [0, 1, 2, 5, 7, 13]
    gpu(hopper, 1).set_mig_mode(True)
    assert partition(gpu(hopper, 1), ONE_G, 0).uuid != partition(device, ONE_G, 0).uuid
