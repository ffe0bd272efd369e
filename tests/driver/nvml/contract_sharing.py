"""What every NVML must do when a mode of a GPU is set; never on a real GPU, whose owner decides on it."""

from collections.abc import Callable

import pytest

from tests.driver.nvml.contract_memory import devices_of, has_mig_on
from tests.gpus import NotSupported, Nvml, NvmlDevice


def _settable(nvml: Nvml) -> list[NvmlDevice]:
    """The GPUs that are nobody's guest and have MIG off."""
    return [
        device for device in devices_of(nvml) if device.virtualization() != "vgpu" and not has_mig_on(device)
    ]


def begins_with_the_default_mode(nvml: Nvml) -> None:
    assert {device.compute_mode() for device in devices_of(nvml)} == {"default"}


def keeps_a_mode_until_it_is_set_again(nvml: Nvml) -> None:
    for device in _settable(nvml):
        for mode in ("exclusive-process", "prohibited", "exclusive-process", "default"):
            device.set_compute_mode(mode)
            assert device.compute_mode() == mode
            assert nvml.device_by_pci(device.pci()).compute_mode() == mode


def sets_the_mode_of_one_gpu_only(nvml: Nvml) -> None:
    devices = _settable(nvml)
    for changed in devices[:1]:
        changed.set_compute_mode("exclusive-process")
        others = [device.compute_mode() for device in devices_of(nvml) if device.pci() != changed.pci()]
        assert set(others) <= {"default"}


def takes_no_mode_in_a_guest_or_with_mig_on(nvml: Nvml) -> None:
    for device in devices_of(nvml):
        if device.virtualization() == "vgpu" or has_mig_on(device):
            with pytest.raises(NotSupported):
                device.set_compute_mode("exclusive-process")
            assert device.compute_mode() == "default"


def forgets_the_mode_when_mig_is_turned_on(nvml: Nvml) -> None:
    for device in _settable(nvml):
        device.set_compute_mode("exclusive-process")
        try:
            device.set_mig_mode(True)
        except NotSupported:
            continue
        assert device.compute_mode() == ("default" if has_mig_on(device) else "exclusive-process")


def keeps_a_gpu_initialised_only_where_that_was_asked_for(nvml: Nvml) -> None:
    devices = devices_of(nvml)
    for device in devices:
        for mode in (True, True, False):
            device.set_persistence_mode(mode)
            assert device.persistence_mode() is mode
            assert nvml.device_by_pci(device.pci()).persistence_mode() is mode
    devices[0].set_persistence_mode(True)
    assert [device.persistence_mode() for device in devices] == [True, *[False] * (len(devices) - 1)]


MODE_CLAUSES: tuple[Callable[[Nvml], None], ...] = (
    begins_with_the_default_mode,
    keeps_a_mode_until_it_is_set_again,
    sets_the_mode_of_one_gpu_only,
    takes_no_mode_in_a_guest_or_with_mig_on,
    forgets_the_mode_when_mig_is_turned_on,
    keeps_a_gpu_initialised_only_where_that_was_asked_for,
)
