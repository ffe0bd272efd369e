"""The binding's MIG calls: what it makes of NVML's odder answers, and how it names what failed."""

import pytest

from tests.driver.nvml.c_library import CLibrary, bound, opened
from tests.gpus import (
    Code,
    FakeMachine,
    GpuLost,
    InstanceNotFound,
    NotSupported,
    NvmlCallFailed,
    NvmlDevice,
    Placement,
)

ONE_G = 19


@pytest.fixture
def device(library: CLibrary) -> NvmlDevice:
    """The second GPU, with MIG on."""
    device = opened(bound(library), 1)
    assert device.set_mig_mode(True) == "done"
    return device


@pytest.mark.parametrize(("status", "activation"), [(19, "in-use"), (16, "reset-required"), (0, "done")])
def test_a_change_of_mode_that_is_not_yet_true_is_no_error(
    device: NvmlDevice, library: CLibrary, status: int, activation: str
) -> None:
    library.mig_activation = status
    assert device.set_mig_mode(False) == activation


def test_a_change_of_mode_that_failed_inside_is_an_error(device: NvmlDevice, library: CLibrary) -> None:
    library.mig_activation = Code.UNKNOWN
    with pytest.raises(NvmlCallFailed, match="nvmlDeviceSetMigMode of GPU 1") as caught:
        device.set_mig_mode(False)
    assert caught.value.code == Code.UNKNOWN


def test_a_driver_that_does_not_know_the_reset_field_cannot_tell(
    device: NvmlDevice, library: CLibrary
) -> None:
    assert device.mig_without_reset()
    library.resetless_field_status = Code.NOT_SUPPORTED
    with pytest.raises(NotSupported):
        device.mig_without_reset()


def test_profiles_that_an_older_driver_does_not_know_are_left_out(
    device: NvmlDevice, library: CLibrary
) -> None:
    library.last_profile_index = 0x8
    assert [profile.index for profile in device.gpu_instance_profiles()] == [0, 1, 2, 3, 4, 7]


def test_an_error_on_the_way_through_profiles_and_devices_is_told(
    device: NvmlDevice, machine: FakeMachine
) -> None:
    for call in ("gpu_instance_profiles", "mig_devices"):
        machine.fail(call, gpu=1, code=Code.UNKNOWN)
        with pytest.raises(NvmlCallFailed) as caught:
            getattr(device, call)()
        assert caught.value.code == Code.UNKNOWN
        machine.heal()
    machine.lose(1)
    with pytest.raises(GpuLost):
        device.gpu_instances()


def test_a_library_without_mig_shows_no_mig_devices(machine: FakeMachine) -> None:
    library = CLibrary(machine.nvml(), missing=("nvmlDeviceGetMaxMigDeviceCount",))
    assert opened(bound(library)).mig_devices() == ()


def test_errors_name_the_gpu_and_the_instance(device: NvmlDevice, machine: FakeMachine) -> None:
    instance = device.create_gpu_instance(ONE_G, Placement(3, 1))
    device.create_compute_instance(instance.id, 0)
    machine.set_processes(device.mig_devices()[0].uuid, (4,))
    with pytest.raises(NvmlCallFailed) as caught:
        device.destroy_compute_instance(instance.id, 0)
    assert (caught.value.call, caught.value.code) == ("nvmlComputeInstanceDestroy", Code.IN_USE)
    assert caught.value.subject == "GPU 1 GPU instance 10 compute instance 0"
    with pytest.raises(NvmlCallFailed) as caught:
        device.destroy_gpu_instance(instance.id)
    assert caught.value.subject == "GPU 1 GPU instance 10"
    with pytest.raises(InstanceNotFound) as missing:
        device.destroy_compute_instance(instance.id, 6)
    assert missing.value.subject == "GPU 1 GPU instance 10 compute instance 6"
    assert "list the instances again" in str(missing.value)
