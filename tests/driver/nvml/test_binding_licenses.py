"""The binding reads licenses from the structure of nvml.h, which pynvml has no function for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from driver.nvml.api import NotSupported
from driver.nvml.real import RealNvml
from driver.nvml.vgpu import LicensableFeature
from fakegpu.machine.fake_machine import FakeMachine
from tests.driver.nvml.c_library import EXPIRY_INVALID, CLibrary

PRODUCT = "NVIDIA Virtual Compute Server"
ENDS = datetime(2026, 11, 23, 9, 8, 7, tzinfo=UTC)


def guest(library: CLibrary) -> RealNvml:
    nvml = RealNvml(load=lambda _: library)
    nvml.init()
    return nvml


@pytest.fixture
def library() -> CLibrary:
    machine = FakeMachine.open("a30-vgpu-guest")
    machine.set_license(0, licensed=True, expires=ENDS)
    return CLibrary(machine.nvml())


def test_a_license_with_its_end_is_read(library: CLibrary) -> None:
    [feature] = guest(library).device_by_index(0).licensable_features()

    assert feature == LicensableFeature(PRODUCT, licensed=True, enabled=True, expires=ENDS)


def test_an_end_that_nvml_calls_invalid_is_not_known(library: CLibrary) -> None:
    library.expiry_status = EXPIRY_INVALID
    [feature] = guest(library).device_by_index(0).licensable_features()

    assert (feature.licensed, feature.expires) == (True, None)


def test_where_licensing_is_not_supported_there_are_no_features(library: CLibrary) -> None:
    library.license_supported = False

    assert guest(library).device_by_index(0).licensable_features() == ()


def test_a_driver_without_the_call_says_not_supported() -> None:
    machine = FakeMachine.open("a30-vgpu-guest")
    library = CLibrary(machine.nvml(), missing=("nvmlDeviceGetGridLicensableFeatures_v4",))

    with pytest.raises(NotSupported):
        guest(library).device_by_index(0).licensable_features()
