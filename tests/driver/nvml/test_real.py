"""The binding: which library it loads, and what it makes of NVML's odder answers."""

from datetime import UTC, datetime
from typing import Any

import pytest

from driver.nvml.api import FabricFailed, NotFound
from tests.driver.nvml.c_library import EXCLUSIVE_THREAD, EXPIRY_INVALID, CLibrary, bound, opened
from tests.gpus import (
    Code,
    DriverNotLoaded,
    FakeMachine,
    GpuLost,
    LicensableFeature,
    NotSupported,
    NvLinkEnd,
    NvmlCallFailed,
    SessionLost,
)


@pytest.fixture
def machine() -> FakeMachine:
    """Two bridged pairs of GPUs."""
    return FakeMachine.open("a30-quad")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.UNINITIALIZED, SessionLost),
        (Code.NOT_SUPPORTED, NotSupported),
        (Code.NOT_FOUND, NotFound),
        (Code.DRIVER_NOT_LOADED, DriverNotLoaded),
        (Code.GPU_IS_LOST, GpuLost),
        (Code.IN_USE, NvmlCallFailed),
        (Code.NO_PERMISSION, NvmlCallFailed),
        (777, NvmlCallFailed),
    ],
)
def test_every_code_becomes_its_error(machine: FakeMachine, code: int, kind: type[NvmlCallFailed]) -> None:
    device = opened(bound(CLibrary(machine.nvml())), 1)
    machine.fail("uuid", code=code)
    with pytest.raises(kind) as caught:
        device.uuid()
    assert type(caught.value) is kind
    assert (caught.value.call, caught.value.code) == ("nvmlDeviceGetUUID", code)
    assert "GPU 1" in str(caught.value)
    assert caught.value.way_out
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("nvmlDeviceGetAddressingMode", "addressing_mode"),
        ("nvmlDeviceGetGridLicensableFeatures_v4", "licensable_features"),
    ],
)
def test_a_function_that_an_old_library_lacks_is_not_supported(function: str, call: str) -> None:
    machine = FakeMachine.open("a30-vgpu-guest")
    library = CLibrary(machine.nvml(), missing=(function,))
    with pytest.raises(NotSupported) as caught:
        getattr(opened(bound(library)), call)()
    assert caught.value.code == Code.FUNCTION_NOT_FOUND


def test_links_are_walked_up_to_the_last_one_of_the_gpu(machine: FakeMachine) -> None:
    library = CLibrary(machine.nvml(), links=4)
    peer = machine.pci(1)
    assert opened(bound(library)).nvlinks() == (NvLinkEnd("gpu", peer),) * 4


def test_a_link_error_other_than_the_end_of_the_links_is_told(machine: FakeMachine) -> None:
    device = opened(bound(CLibrary(machine.nvml())))
    machine.fail("nvlinks", gpu=0, code=Code.UNKNOWN)
    with pytest.raises(NvmlCallFailed) as caught:
        device.nvlinks()
    assert caught.value.code == Code.UNKNOWN


@pytest.mark.parametrize("status", [*Code, 29])
def test_a_fabric_that_completed_with_an_error_says_nothing_of_session_driver_or_gpu(status: int) -> None:
    """The status is the fabric's: its UNINITIALIZED is no lost session, which would void the node's look."""
    machine = FakeMachine.open("gb200-tray")
    library = CLibrary(machine.nvml())
    library.fabric_status = status
    device = opened(bound(library))
    with pytest.raises(FabricFailed, match=r"NVLink fabric of GPU 0 failed with \w+ \(\d+\)") as caught:
        device.fabric()
    assert caught.value.code == status
    assert "nvidia-fabricmanager" in caught.value.way_out


def test_an_affinity_to_several_nodes_names_none() -> None:
    machine = FakeMachine.open("hgx-h100")
    library = CLibrary(machine.nvml())
    device = opened(bound(library), 7)
    assert device.numa_node() == 1
    library.further_node = 700
    with pytest.raises(NotSupported):
        device.numa_node()


def test_a_compute_mode_that_cuda_has_given_up_is_unknown(machine: FakeMachine) -> None:
    library = CLibrary(machine.nvml())
    library.forced_compute_mode = EXCLUSIVE_THREAD
    assert opened(bound(library)).compute_mode() is None


PRODUCT = "NVIDIA Virtual Compute Server"
ENDS = datetime(2026, 11, 23, 9, 8, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("odd", "found"),
    [
        ({}, (LicensableFeature(PRODUCT, licensed=True, enabled=True, expires=ENDS),)),
        (
            {"expiry_status": EXPIRY_INVALID},
            (LicensableFeature(PRODUCT, licensed=True, enabled=True, expires=None),),
        ),
        ({"license_supported": False}, ()),
    ],
    ids=["with its end", "with an end that NVML calls invalid", "where there is no licensing"],
)
def test_a_license_is_read(odd: dict[str, Any], found: tuple[LicensableFeature, ...]) -> None:
    machine = FakeMachine.open("a30-vgpu-guest")
    machine.set_license(0, licensed=True, expires=ENDS)
    library = CLibrary(machine.nvml())
    vars(library).update(odd)

    assert opened(bound(library)).licensable_features() == found
