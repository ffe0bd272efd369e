"""Fake and binding tell the same of a sick GPU, and of one that is well again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from driver.nvml.api import Code, NotSupported, Nvml, NvmlCallFailed, NvmlDevice
from driver.nvml.health.calls import EccErrors, FabricHealth, RecoveryAction, RemappedRows
from driver.nvml.health.real import fabric_health_of
from driver.nvml.real import RealNvml
from fakegpu.machine.fake_machine import FakeMachine
from tests.driver.nvml.c_library import CLibrary
from tests.driver.nvml.c_library_health import ACTIONS, RECOVERY_ACTION_FIELD

Open = Callable[[FakeMachine], NvmlDevice]


def first_gpu(nvml: Nvml) -> NvmlDevice:
    """A handle in a new session."""
    nvml.init()
    return nvml.device_by_index(0)


@pytest.fixture(params=["fake", "binding"])
def ask(request: pytest.FixtureRequest) -> Open:
    """Gives the first GPU of a machine as the fake or the binding has it."""

    def through(machine: FakeMachine) -> NvmlDevice:
        if request.param == "fake":
            return first_gpu(machine.nvml())
        library = CLibrary(machine.nvml())
        return first_gpu(RealNvml(load=lambda _: library))

    return through


@pytest.mark.parametrize("action", ACTIONS)
def test_a_recovery_action_is_told_by_its_name(ask: Open, action: RecoveryAction) -> None:
    machine = FakeMachine.open("hgx-h100")
    device = ask(machine)
    machine.recovery_action(0, action)
    assert device.recovery_action() == action
    machine.reset(0)
    assert device.recovery_action() == "none"


def test_an_action_that_is_newer_than_this_driver_is_unknown(ask: Open) -> None:
    machine = FakeMachine.open("hgx-h100")
    device = ask(machine)
    machine.recovery_action(0, None)
    assert device.recovery_action() is None


def test_an_older_driver_knows_no_recovery_action(ask: Open) -> None:
    machine = FakeMachine.open("hgx-h100")
    machine.driver_back("550.90.07")
    with pytest.raises(NotSupported):
        ask(machine).recovery_action()


def test_the_binding_takes_a_field_that_the_driver_refuses_for_not_supported() -> None:
    machine = FakeMachine.open("hgx-h100")
    library = CLibrary(machine.nvml())
    library.unknown_fields = frozenset({RECOVERY_ACTION_FIELD})
    with pytest.raises(NotSupported):
        first_gpu(RealNvml(load=lambda _: library)).recovery_action()


def test_rows_wait_for_a_reset_and_those_that_failed_stay(ask: Open) -> None:
    machine = FakeMachine.open("hgx-h100")
    device = ask(machine)
    assert device.remapped_rows() == RemappedRows(0, 0, pending=False, failed=False)
    machine.rows(0, RemappedRows(1, 3, pending=True, failed=True))
    assert device.remapped_rows() == RemappedRows(1, 3, pending=True, failed=True)
    machine.reset(0)
    assert device.remapped_rows() == RemappedRows(1, 3, pending=False, failed=True)


def test_pages_are_retired_before_ampere_alone(ask: Open) -> None:
    machine = FakeMachine.open("t4")
    device = ask(machine)
    assert device.retired_pages_pending() is False
    machine.page_pending(0, True)
    assert device.retired_pages_pending() is True
    with pytest.raises(NotSupported):
        device.remapped_rows()
    with pytest.raises(NotSupported):
        ask(FakeMachine.open("a30-quad")).retired_pages_pending()


def test_memory_that_no_reset_repairs_is_told_from_r615_on(ask: Open) -> None:
    machine = FakeMachine.open("hgx-h100")
    with pytest.raises(NotSupported):
        ask(machine).unrepairable_memory()
    machine.driver_back("615.36.01")
    device = ask(machine)
    assert device.unrepairable_memory() is False
    machine.unrepairable(0, True)
    assert device.unrepairable_memory() is True
    machine.reset(0)
    assert device.unrepairable_memory() is True
    machine.replace_board(0)
    assert device.unrepairable_memory() is False


def test_errors_are_counted_until_the_driver_is_loaded_anew(ask: Open) -> None:
    machine = FakeMachine.open("hgx-h100")
    machine.ecc(0, EccErrors(7, 2))
    assert ask(machine).ecc_errors() == EccErrors(7, 2)
    machine.driver_gone()
    machine.driver_back()
    assert ask(machine).ecc_errors() == EccErrors(0, 0)


@pytest.mark.parametrize(
    "fabric",
    [
        FabricHealth("healthy"),
        FabricHealth("unhealthy", ("access-timeout", "route-unhealthy")),
        FabricHealth("limited-capacity", ("degraded-bandwidth",)),
        FabricHealth("unhealthy", ("wrong-configuration",)),
        FabricHealth("healthy", ("route-recovery",)),
    ],
    ids=str,
)
def test_the_fabric_is_told_with_its_faults(ask: Open, fabric: FabricHealth) -> None:
    machine = FakeMachine.open("gb200-tray")
    device = ask(machine)
    machine.fabric_health(0, fabric)
    assert device.fabric_health() == fabric


def test_a_gpu_outside_of_a_fabric_has_no_fabric_health(ask: Open) -> None:
    with pytest.raises(NotSupported):
        ask(FakeMachine.open("dgx-a100")).fabric_health()


def test_a_driver_without_the_summary_is_asked_by_its_mask() -> None:
    machine = FakeMachine.open("gb200-tray")
    library = CLibrary(machine.nvml())
    library.has_fabric_v3 = False
    device = first_gpu(RealNvml(load=lambda _: library))
    assert device.fabric_health() == FabricHealth("healthy")
    machine.fabric_health(0, FabricHealth("unhealthy", ("route-unhealthy",)))
    assert device.fabric_health() == FabricHealth("unhealthy", ("route-unhealthy",))
    machine.fail("fabric_health", code=Code.UNKNOWN)
    with pytest.raises(NvmlCallFailed, match="UNKNOWN"):
        device.fabric_health()


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (0, FabricHealth("unknown")),
        (0x1AA, FabricHealth("healthy")),
        (0x1A9, FabricHealth("limited-capacity", ("degraded-bandwidth",))),
        (0x16A, FabricHealth("unhealthy", ("access-timeout",))),
        (0x8AA, FabricHealth("unhealthy", ("wrong-configuration",))),
        (0x0AA, FabricHealth("healthy")),
    ],
)
def test_a_mask_alone_tells_whether_anything_runs_over_the_fabric(mask: int, expected: FabricHealth) -> None:
    assert fabric_health_of(mask, None) == expected


def test_a_summary_that_is_newer_than_this_driver_is_unknown() -> None:
    assert fabric_health_of(0x1AA, 77) == FabricHealth("unknown")


def test_mig_mode_takes_links_down_where_it_ends_them(ask: Open) -> None:
    machine = FakeMachine.open("dgx-a100")
    ended = machine.spec.links_end_with_mig
    device = ask(machine)
    device.set_mig_mode(True)
    machine.reset(0)
    assert bool(device.nvlinks()) != ended


def test_a_vgpu_guest_is_told_nothing_of_the_board(ask: Open) -> None:
    device = ask(FakeMachine.open("a100-vgpu-guest"))
    for question in (device.recovery_action, device.remapped_rows, device.ecc_errors):
        with pytest.raises(NotSupported):
            question()
