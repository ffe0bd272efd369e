"""Gives each test a pynvml that has loaded nothing: its library is a variable of the module."""

from collections.abc import Iterator

import pytest

from tests.driver.nvml.c_library import unload


@pytest.fixture(autouse=True)
def _unloaded_pynvml() -> Iterator[None]:
    unload()
    yield
    unload()
