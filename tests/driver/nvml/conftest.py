"""Gives each test a pynvml that has loaded nothing, since its library is a variable, and GPUs to ask."""

from collections.abc import Callable, Iterator

import pytest

from tests.driver.nvml.c_library import CLibrary, bound, opened, unload
from tests.gpus import FakeMachine, NvmlDevice


@pytest.fixture(autouse=True)
def _unloaded_pynvml() -> Iterator[None]:
    unload()
    yield
    unload()


@pytest.fixture
def machine() -> FakeMachine:
    """Eight H100."""
    return FakeMachine.open("hgx-h100")


@pytest.fixture
def library(machine: FakeMachine) -> CLibrary:
    """The library that plays the machine."""
    return CLibrary(machine.nvml())


@pytest.fixture(params=["fake", "binding"])
def ask(request: pytest.FixtureRequest) -> Callable[[FakeMachine], NvmlDevice]:
    """Gives the first GPU of a machine as the fake or the binding has it."""

    def through(machine: FakeMachine) -> NvmlDevice:
        nvml = machine.nvml()
        return opened(nvml if request.param == "fake" else bound(CLibrary(nvml)))

    return through
