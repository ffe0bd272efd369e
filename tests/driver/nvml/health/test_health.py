"""Fake and binding tell the same of a sick GPU, and of one that is well again."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from driver.nvml.health.real import fabric_health_of
from tests.driver.nvml.c_library import CLibrary, bound, opened
from tests.driver.nvml.c_library_health import RECOVERY_ACTION_FIELD
from tests.gpus import Code, FabricHealth, FakeMachine, NotSupported, NvmlCallFailed, NvmlDevice


def test_an_action_that_is_newer_than_this_driver_is_unknown_and_an_older_one_knows_none(
    ask: Callable[[FakeMachine], NvmlDevice],
) -> None:
    machine = FakeMachine.open("hgx-h100")
    machine.recovery_action(0, None)
    assert ask(machine).recovery_action() is None
    machine.driver_back("550.90.07")
    with pytest.raises(NotSupported):
        ask(machine).recovery_action()


def test_the_binding_takes_a_field_that_the_driver_refuses_for_not_supported() -> None:
    machine = FakeMachine.open("hgx-h100")
    library = CLibrary(machine.nvml())
    library.unknown_fields = frozenset({RECOVERY_ACTION_FIELD})
    with pytest.raises(NotSupported):
        opened(bound(library)).recovery_action()


def test_a_driver_without_the_summary_is_asked_by_its_mask() -> None:
    machine = FakeMachine.open("gb200-tray")
    library = CLibrary(machine.nvml())
    library.has_fabric_v3 = False
    device = opened(bound(library))
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
    assert fabric_health_of(mask, 77) == replace(expected, summary="unknown"), "a summary that is newer"
