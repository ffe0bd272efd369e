"""MIG on a fake machine: modes and resets, who holds an instance, what survives what, and faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from driver.errors import ConfigError
from driver.nvml.api import Code, MigMode, NvmlCallFailed, SessionLost
from driver.nvml.mig import MigProcess, Placement
from fakegpu.machine.fake_machine import FakeMachine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from driver.nvml.api import NvmlDevice
    from driver.nvml.mig import MigDevice

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


@pytest.fixture
def ampere() -> FakeMachine:
    """Eight A100 with MIG off."""
    return FakeMachine.open("dgx-a100")


def test_a_busy_ampere_says_so_and_cannot_be_reset(ampere: FakeMachine) -> None:
    ampere.set_processes(0, (77,))
    assert gpu(ampere).set_mig_mode(True) == "in-use"
    with pytest.raises(ConfigError, match="in use"):
        ampere.reset(0)


def test_a_process_in_a_partition_stands_in_the_way_of_a_reset(hopper: FakeMachine) -> None:
    mig = partition(gpu(hopper), ONE_G, 0)
    hopper.set_processes(mig.uuid, (5,))
    with pytest.raises(ConfigError, match="in use"):
        hopper.reset(0)
    assert gpu(hopper).mig_devices() == (mig,)


def test_turning_mig_off_takes_the_instances_with_it(hopper: FakeMachine) -> None:
    device = gpu(hopper)
    busy = partition(device, THREE_G, 4)
    hopper.set_processes(busy.uuid, (5,))
    assert device.set_mig_mode(False) == "in-use"
    hopper.set_processes(busy.uuid, ())
    assert device.set_mig_mode(False) == "done"
    assert device.mig_devices() == ()
    device.set_mig_mode(True)
    assert device.gpu_instances() == ()


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


def test_a_reboot_voids_handles_and_ends_processes(hopper: FakeMachine) -> None:
    device = gpu(hopper)
    hopper.set_processes(3, (9,))
    hopper.lose(4)
    hopper.reboot()
    with pytest.raises(SessionLost):
        device.uuid()
    assert gpu(hopper, 3).process_ids() == ()
    assert gpu(hopper, 4).minor() == 4


def test_another_board_comes_without_mig(hopper: FakeMachine) -> None:
    partition(gpu(hopper), ONE_G, 0)
    hopper.replace_board(0)
    assert gpu(hopper).mig_mode() == MigMode(enabled=False, pending=False)


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


def test_a_gpu_instance_is_cut_into_compute_instances_until_it_is_full(hopper: FakeMachine) -> None:
    device = gpu(hopper)
    instance = device.create_gpu_instance(SEVEN_G, Placement(0, 8))
    made = [device.create_compute_instance(instance.id, profile_id) for profile_id in (2, 2)]
    assert [ci.placement for ci in made] == [Placement(0, 3), Placement(4, 3)]
    last = device.create_compute_instance(instance.id, 0)
    assert (last.id, last.placement) == (2, Placement(3, 1))
    assert refused(device.create_compute_instance, instance.id, 0) == Code.INSUFFICIENT_RESOURCES
    assert [mig.compute_instance_slices for mig in device.mig_devices()] == [3, 3, 1]
    assert len({mig.uuid for mig in device.mig_devices()}) == 3
    device.destroy_compute_instance(instance.id, 1)
    assert device.create_compute_instance(instance.id, 1).id == 1


def test_a_guest_that_shows_mig_may_look_and_not_touch(tmp_path: Path) -> None:
    path = tmp_path / "guest.yaml"
    path.write_text(
        'driver_version: "570.1"\ncuda_driver_version: "12.8"\n'
        "product: {name: GRID A100-40C, device_id: 0x20f1, brand: NvidiaVCS, architecture: Ampere, "
        'compute_capability: "8.0", memory_mib: 40960, mig: a100-40gb, virtualization: vgpu}\n'
        'gpus: [{pci: "0000:02:01.0", minor: 0, pcie_root: "pci0000:00"}]\n'
    )
    device = gpu(FakeMachine.open(str(path)))
    assert device.mig_mode() == MigMode(enabled=False, pending=False)
    assert refused(device.set_mig_mode, True) == Code.NOT_SUPPORTED
