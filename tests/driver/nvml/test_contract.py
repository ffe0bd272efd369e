"""The fake on every machine, the binding over a C-shaped library, and the real NVML keep one contract."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pynvml
import pytest

from driver.errors import NvmlError
from driver.nvml.api import NvmlCallFailed
from driver.nvml.fake_machine import FakeMachine
from driver.nvml.fake_spec import known_machines
from driver.nvml.real import SONAME, RealNvml
from tests.driver.nvml.c_library import CLibrary
from tests.driver.nvml.contract import CLAUSES

if TYPE_CHECKING:
    from collections.abc import Callable

    from driver.nvml.api import Nvml


def _real_gpu_is_there() -> bool:
    nvml = RealNvml()
    try:
        nvml.init()
    except NvmlError:
        return False
    nvml.shutdown()
    return True


def _subjects() -> list[str]:
    subjects = [f"{kind}:{machine}" for kind in ("fake", "binding") for machine in known_machines()]
    return [*subjects, "real"] if _real_gpu_is_there() else subjects


@pytest.fixture(params=_subjects())
def nvml(request: pytest.FixtureRequest) -> Nvml:
    """One implementation on one machine."""
    kind, _, machine = str(request.param).partition(":")
    match kind:
        case "fake":
            return FakeMachine.open(machine).nvml()
        case "binding":
            library = CLibrary(FakeMachine.open(machine).nvml())
            pynvml.nvmlLib = library
            return RealNvml(load=lambda _: library)
        case _:
            pynvml.nvmlLib = ctypes.CDLL(SONAME)
            return RealNvml()


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_keeps_the_contract(nvml: Nvml, clause: Callable[[Nvml], None]) -> None:
    clause(nvml)


@pytest.mark.parametrize("machine", known_machines())
def test_the_binding_reads_from_c_what_the_fake_says_in_words(machine: str) -> None:
    fake = FakeMachine.open(machine)
    fake.set_processes(0, (4711, 12))
    straight = fake.nvml()
    straight.init()
    library = CLibrary(fake.nvml())
    bound = RealNvml(load=lambda _: library)
    bound.init()
    compared = 0
    for index in range(straight.device_count()):
        one, other = straight.device_by_index(index), bound.device_by_index(index)
        for name in (
            "uuid", "minor", "index", "pci", "name", "brand", "architecture", "compute_capability",
            "memory_bytes", "addressing_mode", "numa_node", "nvlinks", "mig_mode", "fabric",
            "virtualization", "process_ids",
        ):  # fmt: skip
            assert _answer(getattr(other, name)) == _answer(getattr(one, name)), name
            compared += 1
        for there in fake.state.listed():
            assert other.common_ancestor(there) == one.common_ancestor(there)
            assert other.p2p_read(there) == one.p2p_read(there)
    assert compared == 16 * len(fake.spec.slots)
    bound.shutdown()


def _answer(question: Callable[[], object]) -> object:
    try:
        return question()
    except NvmlCallFailed as error:
        return type(error), error.code
