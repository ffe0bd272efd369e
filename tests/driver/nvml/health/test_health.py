"""Fake and binding tell the same of a sick GPU, and of one that is well again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from driver.nvml.api import Code, NotSupported, Nvml, NvmlCallFailed, NvmlDevice
from driver.nvml.health.calls import EccErrors, FabricHealth, RemappedRows
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


NEWER = "615.36.01"
"""A driver that tells of memory that no reset repairs."""

ROWS = RemappedRows(1, 3, pending=True, failed=True)
FABRICS = (
    FabricHealth("healthy"),
    FabricHealth("unhealthy", ("access-timeout", "route-unhealthy")),
    FabricHealth("limited-capacity", ("degraded-bandwidth",)),
    FabricHealth("unhealthy", ("wrong-configuration",)),
    FabricHealth("healthy", ("route-recovery",)),
)


@pytest.mark.parametrize(
    ("name", "question", "spoil", "answer", "after_reset"),
    [
        *(
            (
                *("hgx-h100", "recovery_action", lambda machine, it=action: machine.recovery_action(0, it)),
                *(action, "none"),
            )
            for action in (*ACTIONS, None)  # None is one that is newer than this driver
        ),
        (
            *("hgx-h100", "remapped_rows", lambda machine: machine.rows(0, ROWS)),
            *(ROWS, replace(ROWS, pending=False)),
        ),
        ("t4", "retired_pages_pending", lambda machine: machine.page_pending(0, True), True, False),
        ("hgx-h100", "unrepairable_memory", lambda machine: machine.unrepairable(0, True), True, True),
        (
            *("hgx-h100", "ecc_errors", lambda machine: machine.ecc(0, EccErrors(7, 2))),
            *(EccErrors(7, 2), EccErrors(0, 0)),
        ),
        *(
            (
                *("gb200-tray", "fabric_health", lambda machine, it=fabric: machine.fabric_health(0, it)),
                *(fabric, FABRICS[0]),
            )
            for fabric in FABRICS
        ),
    ],
)
def test_what_is_wrong_is_told_until_it_is_repaired(
    ask: Open,
    name: str,
    question: str,
    spoil: Callable[[FakeMachine], None],
    answer: object,
    after_reset: object,
) -> None:
    machine = FakeMachine.open(name)
    machine.driver_back(NEWER)
    device = ask(machine)
    spoil(machine)
    assert getattr(device, question)() == answer
    machine.reset(0)
    machine.driver_gone()
    machine.driver_back(NEWER)
    assert getattr(ask(machine), question)() == after_reset


@pytest.mark.parametrize(
    ("name", "version", "questions"),
    [
        ("hgx-h100", "550.90.07", ("recovery_action",)),
        ("hgx-h100", "570.133.20", ("unrepairable_memory",)),
        ("t4", NEWER, ("remapped_rows",)),
        ("a30-quad", NEWER, ("retired_pages_pending",)),
        ("dgx-a100", NEWER, ("fabric_health",)),
        ("a100-vgpu-guest", NEWER, ("recovery_action", "remapped_rows", "ecc_errors")),
    ],
)
def test_what_a_driver_or_a_board_does_not_know_is_not_supported(
    ask: Open, name: str, version: str, questions: tuple[str, ...]
) -> None:
    machine = FakeMachine.open(name)
    machine.driver_back(version)
    for question in questions:
        with pytest.raises(NotSupported):
            getattr(ask(machine), question)()


def test_the_binding_takes_a_field_that_the_driver_refuses_for_not_supported() -> None:
    machine = FakeMachine.open("hgx-h100")
    library = CLibrary(machine.nvml())
    library.unknown_fields = frozenset({RECOVERY_ACTION_FIELD})
    with pytest.raises(NotSupported):
        first_gpu(RealNvml(load=lambda _: library)).recovery_action()


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
